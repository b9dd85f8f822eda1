"""`beanpole pipeline job`: the life of a job, from a cluster and from an export, without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpoled.cli import main
from pyspark_beanpole.life import life_of, lines, totals
from pyspark_beanpole.schema import EVENTS, arrow_schema
from tests.pipeline.conftest import Start
from tests.pipeline.double import BATCH_ROWS, Log, event
from tests.pipeline.exported import write_export
from tests.pipeline.histories import History

SCHEMA = arrow_schema(EVENTS)


def life_of_one(job_id: int = 2) -> list[dict[str, object]]:
    """Return the events of a job that times out, is buried, kicked and done, and of other jobs."""
    steps: list[dict[str, object]] = [
        {"event": "put", "ttr_s": 60, "body_bytes": 7},
        # From here on the client's host is recorded.
        {
            "event": "reserved",
            "state": "reserved",
            "wait_us": 1_500_000,
            "attempt": 1,
            "host": "w1",
        },
        {"event": "timed_out", "reason": "ttr", "run_us": 60_000_000, "timeouts": 1},
        {"event": "reserved", "state": "reserved", "wait_us": 500_000, "attempt": 2},
        {"event": "buried", "state": "buried", "run_us": 1_000_000, "buries": 1},
        {"event": "kicked", "kicks": 1},
        {"event": "reserved", "state": "reserved", "wait_us": 0, "attempt": 3},
        {"event": "deleted", "state": "gone", "run_us": 250_000},
    ]
    found = [event(0)]
    known: dict[str, object] = {
        "job_id": job_id, "tube": "mail", "state_before": "gone", "node": "n1", "host": None,
        **dict.fromkeys(("attempt", "timeouts", "releases", "buries", "kicks"), 0),
    }  # fmt: skip
    for step in steps:
        known = {**known, "state": "ready", "reason": None, "wait_us": None, "run_us": None, **step}
        found.append(event(len(found), **known))
        known["state_before"] = known["state"]
        found.append(event(len(found), job_id=100 + len(found)))
    return found


def export(directory: Path, events: list[dict[str, object]]) -> Path:
    """Write events in two files, in the format of release 0.3.0."""
    folder = directory / "date=2026-01-31"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(events, SCHEMA)
    for first, end in ((0, 10), (10, len(events))):
        part = table.slice(first, end - first)
        pq.write_table(part, folder / f"events-{first:020}-{end:020}.parquet")
    jobs = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)
    spans = [[0, len(events)]]
    manifest = {"version": 1, "cluster": "double", "spans": spans, "jobs_before": jobs}
    (directory / "_manifest.json").write_text(json.dumps(manifest))
    return directory


TOLD = """\
job 2 of cluster double, tube mail
2026-01-31 12:00:01.000  put        ready     n1  priority 0, TTR 60 s, 7 bytes
2026-01-31 12:00:03.000  reserved   reserved  w1  waited 1.5 s, attempt 1
2026-01-31 12:00:05.000  timed_out  ready     w1  ttr, ran 1 min
2026-01-31 12:00:07.000  reserved   reserved  w1  waited 500 ms, attempt 2
2026-01-31 12:00:09.000  buried     buried    w1  ran 1 s
2026-01-31 12:00:11.000  kicked     ready     w1
2026-01-31 12:00:13.000  reserved   reserved  w1  waited 0 s, attempt 3
2026-01-31 12:00:15.000  deleted    gone      w1  ran 250 ms
gone after 14 s: waited 2 s, ran 250 ms, unfinished 1.02 min; 3 reservations, 1 timeout, \
0 releases, 1 bury, 1 kick
"""


def test_a_life_from_nodes_and_from_an_export(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log(events=life_of_one()))
    directory = export(tmp_path / "export", life_of_one())
    for source in (["--addresses", node.address], ["--from", str(directory)]):
        assert main(["pipeline", "job", "2", *source]) == 0
        assert capsys.readouterr().out == TOLD
        assert main(["pipeline", "job", "2", *source, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [row["event"] for row in found["events"]][-2:] == ["reserved", "deleted"]
        assert found["whole"] and found["tube"] == "mail" and found["cluster"] == "double"
        assert found["totals"]["waited_s"] == 2.0 and found["totals"]["unfinished_s"] == 61.0


def named(external_ids: dict[int, str]) -> list[dict[str, object]]:
    """Return events in which some jobs have external ids, as in protocols other than beanstalk."""
    known = {2: "7c8b3c52-7d8d-4a0c-8f6a-3d7f2f1f0a11", **external_ids}
    return [{**one, "external_id": known.get(int(str(one["job_id"])))} for one in life_of_one()]


def test_a_job_is_found_by_what_its_client_calls_it(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uuid = "7c8b3c52-7d8d-4a0c-8f6a-3d7f2f1f0a11"
    events = named({})
    node = start(Log(events=events))
    directory = export(tmp_path / "export", events)
    for source in (["--addresses", node.address], ["--from", str(directory)]):
        assert main(["pipeline", "job", "--external-id", uuid, *source]) == 0
        assert capsys.readouterr().out == TOLD.replace("mail", f"mail, external id {uuid}", 1)
        assert main(["pipeline", "job", "--external-id", uuid, *source, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["job_id"], found["external_id"]) == (2, uuid)
        assert main(["pipeline", "job", "--external-id", "x\n", *source]) == 1
        words = "no event of a job with the external id 'x\\n' in cluster double: searched"
        assert words in capsys.readouterr().err


def test_of_the_jobs_of_one_external_id_the_newest_is_told(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log(events=named({2: "u", 104: "u", 106: "u"})))
    assert main(["pipeline", "job", "--external-id", "u", "--addresses", node.address]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("job 106 of cluster double, tube default, external id u\n")
    assert told.err == "beanpole: earlier jobs had this external id: 2, 104\n"


@pytest.mark.parametrize("arguments", [[], ["2", "--external-id", "u"]])
def test_a_job_is_asked_for_in_one_way(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["pipeline", "job", *arguments, "--addresses", "127.0.0.1:1"])
    assert refused.value.code == 2
    assert "--external-id" in capsys.readouterr().err


def test_an_unknown_job_is_one_line_that_says_where_it_was_looked_for(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log(events=life_of_one()))
    node.first = 4
    assert main(["pipeline", "job", "77", "--addresses", node.address]) == 1
    assert capsys.readouterr().err == (
        "beanpole: no event of job 77 in cluster double: searched offsets 4 to 16, 2026-01-31 "
        "12:00 to 2026-01-31 12:00 UTC\n"
    )
    directory = export(tmp_path / "export", life_of_one())
    assert main(["pipeline", "job", "77", "--from", str(directory)]) == 1
    assert "searched offsets 0 to 16, " in capsys.readouterr().err
    (_, lost, _) = write_export(tmp_path / "holed", life_of_one(), rows_max=6)
    (tmp_path / "holed" / lost.name).unlink()
    where = ["--from", str(tmp_path / "holed"), "--allow-missing"]
    assert main(["pipeline", "job", "77", *where]) == 1
    assert "searched offsets 0 to 16 but for 6 that are missing, " in capsys.readouterr().err
    assert main(["pipeline", "job", "1", "--addresses", start(Log()).address]) == 1
    assert capsys.readouterr().err.endswith("in cluster double: there are no events\n")


def test_a_job_whose_put_is_gone_says_so(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    node = start(Log(events=life_of_one()))
    node.first = 4
    assert main(["pipeline", "job", "2", "--addresses", node.address]) == 0
    assert "its put is older than the events that are there" in (capsys.readouterr().out)


def test_an_empty_external_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["pipeline", "job", "--addresses", "127.0.0.1:1", "--external-id", ""])
    assert refused.value.code == 2
    assert "'' is no external id" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "1.5", str(2**63), "\uff11"])
def test_what_is_no_id_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["pipeline", "job", "--addresses", "127.0.0.1:1", "--", wrong])
    assert refused.value.code == 2
    assert f"{wrong!r} is not a job id: it must be 1 to" in capsys.readouterr().err


def test_a_damaged_export_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = export(tmp_path / "export", life_of_one())
    path = next(directory.glob("date=*/*10-*.parquet"))
    path.unlink()
    assert main(["pipeline", "job", "2", "--from", str(directory)]) == 3
    assert "has no file with the events 10 to 16" in capsys.readouterr().err


def test_only_files_that_may_have_the_job_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is only reported in files that may have the job."""
    # As for an export that is too large to be checked in advance.
    monkeypatch.setattr("pyspark_beanpole.exports.AHEAD_BYTES_MAX", 0)
    events = [event(number) for number in range(100)]
    directory = tmp_path / "export"
    files = write_export(directory, events, rows_max=10)
    path = directory / files[5].name
    content = bytearray(path.read_bytes())
    content[20] ^= 255
    path.write_bytes(content)
    assert main(["pipeline", "job", "21", "--from", str(directory)]) == 0
    assert "job 21 of cluster double" in capsys.readouterr().out
    assert main(["pipeline", "job", "55", "--from", str(directory)]) == 3
    assert path.name in capsys.readouterr().err


def test_reading_ends_where_the_job_is_gone(start: Start) -> None:
    log = Log(events=life_of_one())
    node = start(log, 10 * BATCH_ROWS)
    events = pa.Table.from_pylist(log.events, SCHEMA).to_batches(max_chunksize=BATCH_ROWS)
    read = iter(events)
    assert len(life_of(2, read).events) == 8
    assert len(list(read)) == len(events) - 1
    assert node.reads == []


def test_no_java_and_no_session_are_started(tmp_path: Path) -> None:
    directory = export(tmp_path / "export", life_of_one())
    command = ["pipeline", "job", "2", "--from", str(directory)]
    program = (
        f"from beanpoled.cli import main\nimport sys\nstatus = main({command})\n"
        "raise SystemExit(status or ('pyspark' in sys.modules) * 7)"
    )
    # Without a PATH no Java would be found.
    paths = {"PYTHONPATH": ":".join(sys.path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=paths, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, TOLD), done.stderr


def test_an_unknown_job_is_told_without_pyspark(start: Start) -> None:
    node = start(Log(events=life_of_one()))
    command = ["pipeline", "job", "99", "--addr", node.address]
    program = (
        "import sys\nsys.modules['pyspark'] = None\n"
        f"from beanpoled.cli import main\nraise SystemExit(main({command}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no event of job 99 in cluster double: searched offsets 0 to" in done.stderr


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), job=st.integers(1, 20), size=st.integers(1, 90))
def test_lives_add_up_whatever_the_batches(seed: int, job: int, size: int) -> None:
    events = History(seed).run(200).events
    own = [one for one in events if one["job_id"] == job]
    table = pa.Table.from_pylist(events, SCHEMA)
    life = life_of(job, table.to_batches(max_chunksize=size))
    assert [row["offset"] for row in life.events] == [one["offset"] for one in own]
    if not own:
        return
    told = list(lines(life, "x"))
    assert len(told) == len(own) + 2
    found = totals(life)
    assert found["reservations"] == own[-1]["attempt"]
    held = sum(one["run_us"] or 0 for one in own) / 1e6
    assert found["ran_s"] + found["unfinished_s"] == pytest.approx(held)


def test_an_empty_name_is_no_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "job", "2", "--from", ""]) == 2
    assert capsys.readouterr().err == "beanpole: '' is no directory; the current one is .\n"


def test_words_of_clients_do_not_move_the_cursor(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [one | {"reason": "a\x1b[2Jb", "host": "h\x9bh"} for one in life_of_one()]
    assert main(["pipeline", "job", "2", "--addresses", start(Log(events=events)).address]) == 0
    said = capsys.readouterr().out
    assert "a\\x1b[2Jb" in said and "h\\x9bh" in said


@pytest.mark.parametrize("text", ["0", "-1", "x", "\u0662", "9" * 19, "9" * 5000])
def test_what_is_no_id_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", "job", "--", text])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"{text!r} is not a job id: it must be 1 to {2**63 - 1}")
