"""The benchmark suite: ours against its peers, and against itself as problems grow. Run: make bench"""
