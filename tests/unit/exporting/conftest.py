"""A bucket of an object store, here a local moto server."""

from collections.abc import Iterator

import pytest
from pyarrow.fs import S3FileSystem

from tests.unit.exporting.made import object_store


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield the endpoint of an empty store."""
    with object_store() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URI of an empty bucket; the environment has the keys and the endpoint."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server}")
    store = S3FileSystem(
        endpoint_override=server, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    store.create_dir("events")
    store.delete_dir_contents("events")
    return "s3a://events/out"
