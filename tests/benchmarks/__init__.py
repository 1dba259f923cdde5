"""What the runtime costs: start-up against torchrun, steps per second against loops written by hand and against others.

    python -m tests.benchmarks start       a command with two processes, from its start to its end
    python -m tests.benchmarks steps       training loops in one run, in turn
    python -m tests.benchmarks evaluation  an evaluation whole on every process, and in shards
    python -m tests.benchmarks replicas    a step in which the processes' parameters are compared
    python -m tests.benchmarks shared      whole batches that each process loads, and that are loaded once
    python -m tests.benchmarks --update    all, and write the tables into dp2ddp/runtime/README.md

On the CPU, two processes with one thread each; minutes long, and meant for a machine that does nothing else. Every
ratio is of two measurements of the same round; what is shown is the median of the rounds, and their middle half.
"""
