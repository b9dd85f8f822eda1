"""Names of directories: names that stock Spark accepts, and rejected names."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import GcsFileSystem, LocalFileSystem, S3FileSystem

from beanpole.errors import ConfigurationError
from beanpole.places import GS_RETRY_LIMIT_S, S3_SILENT_MAX_S, below, resolved, shown

OPTIONS = "endpoint_override=127.0.0.1:9&scheme=http"


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_names_of_this_machine(form: str, tmp_path: Path) -> None:
    place = resolved(form.format(tmp_path))
    assert isinstance(place.files, LocalFileSystem)
    assert (place.path, place.name, place.is_local) == (str(tmp_path), str(tmp_path), True)


def test_a_relative_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("a/b/").path == str(tmp_path / "a" / "b")
    assert resolved("day:1/b").path == str(tmp_path / "day:1" / "b")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_names_of_object_stores(scheme: str) -> None:
    place = resolved(f"{scheme}://bucket/some/path/?{OPTIONS}")
    assert isinstance(place.files, S3FileSystem)
    assert (place.path, place.is_local) == ("bucket/some/path", False)
    assert place.name == f"{scheme}://bucket/some/path"
    assert place.at("x") == "bucket/some/path/x"


def arguments_of(name: str) -> dict[str, Any]:
    """Return the arguments with which pickle makes a file system again."""
    found: dict[str, Any] = resolved(name).files.__reduce__()[1][0]
    return found


def test_requests_to_object_stores_are_bounded() -> None:
    bounds = {"request_timeout": S3_SILENT_MAX_S, "allow_delayed_open": True}
    own = {
        "access_key": "key",
        "secret_key": "se/cret",
        "region": "x",
        "scheme": "http",
        "endpoint_override": "127.0.0.1:9",
        "tls_ca_file_path": "/ca",
        "anonymous": False,
    }
    name = f"s3a://key:se%2Fcret@bucket/path?{OPTIONS}&region=x"
    found = arguments_of(f"{name}&tls_ca_file_path=/ca")
    assert {key: found[key] for key in own | bounds} == own | bounds
    # An option that only a URI can have is kept, without bounds.
    assert not arguments_of(f"{name}&tls_verify_certificates=false")["allow_delayed_open"]
    name = f"gs://anonymous@bucket/some/path?{OPTIONS}"
    assert arguments_of(name)["retry_time_limit"] == timedelta(seconds=GS_RETRY_LIMIT_S)
    own_limit = arguments_of(f"{name}&retry_limit_seconds=7")["retry_time_limit"]
    assert own_limit == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("/a/b/", "/a/b/events"),
        ("/", "/events"),
        ("/a?b", "/a?b/events"),
        ("day:1", "day:1/events"),
        ("file:///a", "file:///a/events"),
        ("s3://bucket/x", "s3://bucket/x/events"),
        ("s3a://key:secret@bucket/x/?region=y", "s3a://key:secret@bucket/x/events?region=y"),
    ],
)
def test_names_of_folders_of_a_directory(name: str, folder: str) -> None:
    assert below(name, "events") == folder


def test_names_of_google() -> None:
    place = resolved(f"gs://anonymous@bucket/some/path?{OPTIONS}")
    assert isinstance(place.files, GcsFileSystem)
    assert place.path == "bucket/some/path"


def test_keys_are_not_shown() -> None:
    assert shown("s3a://key:secret@bucket/path/?region=x") == "s3a://bucket/path"
    assert shown("hdfs://host:9000/x") == "hdfs://host:9000/x"
    assert shown("/a?b@c") == "/a?b@c"
    assert shown("s3://bucket/a@b") == "s3://bucket/a@b"
    for secret in ("se/cret", "se?cret", "s@cret", "s@c/r?t", "/secret"):
        assert shown(f"s3://key:{secret}@bucket/path?region=x") == "s3://bucket/path"
    assert "secret" not in shown("s3://key:secret@bucket/path?endpoint_override=a@b&x=secret")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "'' is no directory; the current one is ."),
        ("ftp://host/x", "ftp://host/x is not allowed: it must be a path or a URI that begins"),
        ("file://host/x", "file://host/x is not allowed: it must be file:/PATH or file:///PATH"),
        ("s3://key:secret@", "s3: is not allowed: it names no bucket"),
        ("s3://", "s3: is not allowed: it names no bucket"),
        ("s3://bucket/x?colour=red", "s3://bucket/x cannot be reached: "),
        ("s3://key:secret@bu[cket/x", "s3://bu[cket/x cannot be reached: "),
        ("s3a://key:se/secret@bucket/x", "s3a://bucket/x cannot be reached: "),
        ("s3:key:a secret@bucket/x", "s3:bucket/x cannot be reached: "),
        ("s3://key:secret@bucket/x?region=%zz", "s3://bucket/x cannot be reached: "),
        ("hdfs://key:secret@host:99999999/x", "hdfs://host:99999999/x cannot be reached: "),
    ],
)
def test_other_names_are_refused_in_a_line(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        resolved(name)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["hdfs://host:9000/x", "hdfs:/x", "hdfs:///x", "viewfs://c/x"])
def test_without_hadoop_its_names_are_refused_in_a_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow loads Hadoop's own library, which the machines that run the tests do not have."""
    for variable in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError) as raised:
        resolved(name)
    assert str(raised.value).startswith(f"{name} cannot be reached: ")
    assert "libhdfs" in str(raised.value) or "libjvm" in str(raised.value)
