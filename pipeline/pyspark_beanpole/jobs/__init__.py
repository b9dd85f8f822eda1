"""A folder for `main`, the script that spark-submit runs."""
