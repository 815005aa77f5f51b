"""The newest numbered document is located in a few requests, for any number of documents.

A version is the published statistics of a table at one snapshot. Each version has a number, and a document such as
`versions/7.json`. The file `versions/newest` is a hint: it has the number of the newest document, but may be wrong or
missing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, VersionConflictError
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.formats.s3_proxy import Requests, counted
from tests.store.sample_versions import version


class MemoryStore(ObjectStore):
    """An object store in memory that counts requests."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__("/nowhere")
        self.objects, self.requested, self.listed = objects, 0, 0

    def read(self, path: str) -> bytes:
        self.requested += 1
        if path not in self.objects:
            return super().read(path)  # raises the error
        return self.objects[path]

    def info(self, path: str) -> object:  # type: ignore[override]
        self.requested += 1
        return self.objects.get(path)

    def list(self, prefix: str = "") -> list[object]:  # type: ignore[override]
        self.listed += 1
        return [type("Info", (), {"path": path})() for path in self.objects if path.startswith(f"{prefix}/")]


HINTS = st.one_of(
    st.none(),
    st.binary(max_size=4),
    st.integers(-3, 10**6).map(lambda number: str(number).encode()),
    st.sampled_from([b"007", b" 7", b"7\n", b"9" * 30, "٣".encode(), b"1e3"]),
)


@given(st.integers(1, 3000), st.integers(0, 5000), HINTS)
def test_the_newest_document_is_determined_with_any_hint(oldest: int, newest: int, hint: bytes | None) -> None:
    numbers = range(oldest, newest + 1)
    objects = {f"versions/{number}.json": b"x" for number in numbers}
    if hint is not None:
        objects["versions/newest"] = hint
    documents = Documents(MemoryStore(objects))
    assert documents.newest() == (newest if numbers else 0)


@given(st.integers(1, 10**6), st.integers(0, 40))
def test_the_hint_may_be_outdated(hint: int, behind: int) -> None:
    """A hint that is up to 40 documents behind costs at most 15 requests, and nothing is listed."""
    objects = {f"versions/{number}.json": b"x" for number in range(hint, hint + behind + 1)}
    store = MemoryStore({**objects, "versions/newest": str(hint).encode()})
    assert Documents(store).newest() == hint + behind
    assert store.requested <= 3 + 2 * behind.bit_length()
    assert store.listed == 0


@pytest.fixture
def versions(store: ObjectStore) -> VersionStore:
    """A table with three versions."""
    versions = VersionStore(store, "orders")
    for number in range(1, 4):
        versions.publish(version(number))
    return versions


@pytest.mark.parametrize("hint", [None, b"", b"1", b"2", b"99", b"nonsense", b"\xff"])
def test_wrong_and_missing_hints_are_corrected(versions: VersionStore, hint: bytes | None) -> None:
    """The newest version is read despite the hint, and the next publisher corrects the hint."""
    if hint is None:
        versions.objects.delete(["versions/newest"])
    else:
        versions.objects.write("versions/newest", hint)
    assert versions.latest() == version(3)
    versions.publish(version(4))
    assert versions.latest() == version(4)
    assert versions.objects.read("versions/newest") == b"4"


def test_a_hint_may_name_a_damaged_document(versions: VersionStore) -> None:
    """A damaged document that the hint names is no error, because only the newest document must be valid."""
    versions.objects.write("versions/2.json", b"damaged")
    versions.objects.write("versions/newest", b"2")
    assert versions.latest() == version(3)


def test_a_copy_of_an_older_document_is_damaged(versions: VersionStore) -> None:
    """A document that contains the number of another document is an error.

    Otherwise, the next version would have the number of an existing one, and could never be published.
    """
    versions.objects.write("versions/4.json", versions.documents.read(2))
    with pytest.raises(CorruptionError, match=r"versions/4\.json.*\b2\b"):
        versions.latest()


def test_a_publisher_with_an_outdated_hint_replaces_nothing(versions: VersionStore) -> None:
    """The hint does not name version 3 yet.

    Publishing version 3 again is a conflict, and no file is added or replaced.
    """
    versions.objects.write("versions/newest", b"2")
    before = [info.path for info in versions.objects.list()]
    with pytest.raises(VersionConflictError):
        versions.publish(version(3, "late"))
    assert versions.latest() == version(3)
    assert [info.path for info in versions.objects.list()] == before


def test_a_version_can_be_published_after_its_document_was_removed_by_hand(versions: VersionStore) -> None:
    """The newest document is removed by hand, as the error about a damaged document advises.

    A version with the same number can then be published.
    """
    versions.objects.write("moved away", versions.documents.read(3))
    versions.objects.delete(["versions/3.json"])
    assert versions.latest() == version(2)
    versions.publish(version(3, "again"), versions.latest())
    assert versions.latest() == version(3, "again")
    assert versions.numbers() == [1, 2, 3]


@pytest.fixture(scope="module")
def requests(s3_endpoint: str) -> Iterator[Requests]:
    with counted(s3_endpoint) as request_counter:
        yield request_counter


@pytest.mark.s3
@pytest.mark.parametrize("many_versions", [200, pytest.param(3000, marks=pytest.mark.long)])
def test_the_number_of_requests_does_not_depend_on_the_number_of_versions(
    s3_options: dict[str, str], requests: Requests, many_versions: int
) -> None:
    """The number of requests to read or publish a version is the same for 10 versions as for many.

    It takes three requests to find the number of the newest version, or five if the last hint was not written. Nothing
    is listed.
    """
    counts = []
    for newest in (10, many_versions):
        root = ObjectStore(f"s3://metastore/{uuid.uuid4().hex}", s3_options)
        write_documents(root, newest, s3_options)
        versions = VersionStore(root, "orders")
        versions.publish(version(newest))
        counted_versions = VersionStore(
            ObjectStore(root.uri(), {**s3_options, "aws_endpoint": requests.endpoint}), "orders"
        )
        requests.take()
        assert counted_versions.newest() == newest
        newest_requests = requests.take()
        latest = counted_versions.latest()
        assert latest == version(newest)
        read_requests = requests.take()
        counted_versions.publish(version(newest + 1), latest)
        publish_requests = requests.take()
        versions.objects.write("versions/newest", str(newest).encode())
        assert counted_versions.newest() == newest + 1
        outdated_requests = requests.take()
        assert not any(
            request.startswith("list")
            for request in (*newest_requests, *read_requests, *publish_requests, *outdated_requests)
        )
        counts.append([len(newest_requests), len(read_requests), len(publish_requests), len(outdated_requests)])
    assert counts[0] == counts[1]
    assert counts[0][0] == 3
    assert counts[0][3] == 5
    assert counts[0][1] <= 8, "the document and four files of entries"


def write_documents(root: ObjectStore, newest: int, options: dict[str, str]) -> None:
    """Write documents for all versions before the number `newest`.

    Their content is invalid, so reading one would be an error.
    """
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        aws_access_key_id="key",
        aws_secret_access_key="not-a-secret",
        region_name="us-east-1",
    )
    folder = root.uri().removeprefix("s3://metastore/")

    def put(number: int) -> None:
        client.put_object(Bucket="metastore", Key=f"{folder}/orders/versions/{number}.json", Body=b"{}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(1, newest)))


def test_other_files_are_not_documents() -> None:
    documents = Documents(ObjectStore("/nowhere"), "a/b")
    assert documents.number("a/b/17.json") == 17
    for path in ("a/b/017.json", "a/b/0.json", "a/b/17", "a/b/17.json.bak", "b/17.json", "17.json", "a/b/c/17.json"):
        assert documents.number(path) is None
    assert documents.contains("a/b/newest")
    assert not documents.contains("newest")


def test_a_late_writer_of_the_hint_does_not_hide_newer_documents(store: ObjectStore) -> None:
    """After each of eleven versions, the hint is set to 1, as a late publisher could.

    The newest version is still located.
    """
    versions = VersionStore(store, "orders")
    for number in range(1, 12):
        versions.publish(version(number))
        versions.objects.write("versions/newest", b"1")
        assert versions.newest() == number
