"""What bench/run, bench/report and bench/compare share. Python's standard library only."""
