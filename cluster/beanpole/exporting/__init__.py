"""Export directories on file systems: their files, their manifest, their compaction."""
