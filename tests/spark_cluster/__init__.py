"""A standalone Spark cluster whose executors come and go, with the package from an archive, as docs/deploying.md says."""
