"""Export directories on file systems: files, manifest and compaction."""
