"""Jobs on YARN, with the package from an archive, as docs/deploying.md says."""
