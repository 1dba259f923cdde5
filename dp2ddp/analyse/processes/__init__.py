"""What has to be one process's, the same in all, or a rank's own: start, devices, files, checkpoints, conditions."""
