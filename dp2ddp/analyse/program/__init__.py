"""Who is who, in any program: values, calls, what runs without a call. Knows nothing of DataParallel."""
