"""Rebuild `verify.png`: `MNIST_ROOT=/folder/of/mnist python examples/mnist/page.py`.

Verifies the fixture "tutorial" on the real MNIST and takes a picture of the report's page, as a browser shows it in a
window of 900 pixels, down to its last part, the diff. Needs `pip install 'PySide6-Addons==6.9.*' pillow` besides the
package's own `.[examples]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PySide6.QtCore import QTimer, QUrl
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parents[1] / "fixtures" / "tutorial" / "before" / "train.py"
COMMAND = "verify train.py --float64 --report out.html -- --data data --epochs 2"
WIDTH = 900
SETTLED = 1000
"""Milliseconds after which a page has been drawn."""


def verify(folder: Path) -> Path:
    """The report of a verification in ``folder``."""
    (folder / "train.py").write_text(SCRIPT.read_text())
    (folder / "data").symlink_to(os.environ["MNIST_ROOT"])
    subprocess.run([sys.executable, "-m", "dp2ddp", *COMMAND.split()], cwd=folder, check=True)
    return folder / "out.html"


def photograph(page: Path, picture: Path) -> None:
    """Show ``page`` without a screen, and keep what is seen of it."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ.setdefault("QTWEBENGINE_CHROMIUM_FLAGS", "--no-sandbox --disable-gpu --hide-scrollbars")
    app = QApplication([])
    view = QWebEngineView()

    def fit(height: float) -> None:
        view.resize(WIDTH, int(height))
        QTimer.singleShot(SETTLED, keep)

    def keep() -> None:
        view.grab().save(str(picture))
        app.quit()

    def shown(_: bool) -> None:
        measure = (
            "document.documentElement.style.overflow = 'hidden';"
            "document.querySelector('h2:last-of-type').offsetTop - 10"
        )
        QTimer.singleShot(SETTLED, lambda: view.page().runJavaScript(measure, fit))

    view.resize(WIDTH, 100)
    view.show()
    view.loadFinished.connect(shown)
    view.load(QUrl.fromLocalFile(str(page)))
    app.exec()
    Image.open(picture).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        photograph(verify(Path(place)), HERE / "verify.png")
