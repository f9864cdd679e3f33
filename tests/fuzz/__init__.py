"""Random files and run folders, the processes that read them under limits, and what must hold: see `oracle`."""
