"""What the command line says of an error that fills a page."""

from pyspark_beanpole.cli.common import gist

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated: Traceback (most recent call last):
  File "worker.py", line 227, in main
    command = read()
              ^^^^^^
{}
 SQLSTATE: 38000
\tat org.apache.spark.Something
"""


def test_our_own_words_come_first() -> None:
    words = "beanpole.client.events.EventsLost: the events from offset 7 on are gone"
    assert gist(TRACEBACK.format(words)) == "the events from offset 7 on are gone"


def test_words_of_python_and_of_spark() -> None:
    missing = "ModuleNotFoundError: No module named 'grpc'"
    assert gist(TRACEBACK.format(missing)) == missing
    assert gist("[PATH_NOT_FOUND] no such path\n\tat org.apache") == "[PATH_NOT_FOUND] no such path"
