"""What was checked, on pages: a mark of each kind, its subject, and behind it what was compared, failures included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.inspection.checks.result import Kind, ModelReport, Result, Status
from atlas.inspection.ledger import Ledger
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.settings import Settings
from atlas.web.app import create_app

A = "blocks/attention/"
CODE, WEIGHTS = "the reference code at Llama 3 8B's true size", "the weights of SmolLM2 135M, which stand in"


def result(
    kind: Kind, node: str, subject: str = CODE, status: Status = "passed", detail: str = "", **numbers: float | str
) -> Result:
    return Result(kind=kind, status=status, what="it holds", subject=subject, node=node, detail=detail, numbers=numbers)


REPORT = ModelReport(
    model="llama-3-8b",
    name="Llama 3 8B",
    results=(
        *(result("shapes", f"{A}{name}", full="2 × 5 × 4096") for name in ("queries", "keys", "attention-update")),
        result("edges", f"{A}queries", edges=3),
        result("equations", f"{A}queries", WEIGHTS, worst_row=1.2e-6, tolerance=1e-5),
        result("equations", f"{A}keys", WEIGHTS, "failed", "layer 3: row [0] is <b>0.5</b> away."),
        result("checkpoint", "", "Llama 3 8B", "pending", "Its weights are not here."),
    ),
    seconds=2.0,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def checked(catalog: Catalog, directory: Path) -> Iterator[TestClient]:
    settings = Settings(data_dir=directory)
    Ledger(settings, catalog).write(REPORT, datetime(2026, 3, 4, 5, 6, tzinfo=UTC))
    with TestClient(create_app(settings, catalog=catalog)) as client:
        yield client


def marks(text: str) -> dict[str, tuple[str, str, str]]:
    """Each mark's verdict, words and subject."""
    found = re.findall(r'<li data-check="(\w+)" data-ok="(\w*)"(?: title="([^"]*)")?>(.*?)</li>', text, re.DOTALL)
    return {name: (ok, re.sub(r"<[^>]+>", "", words), title) for name, ok, title, words in found}


def test_a_node_has_a_mark_of_each_kind_with_its_subject(checked: TestClient) -> None:
    text = checked.get(f"/models/llama-3-8b/{A}queries").text
    found = marks(text)
    assert found["source"][0] == "true"
    assert found["shape"][0] == found["edges"][0] == found["equation"][0] == "true"
    assert "Llama 3 8B&#39;s true size" in found["shape"][2]
    assert "weights of SmolLM2 135M" in found["equation"][1]
    assert "4 Mar 2026, 05:06 UTC" in text
    for kind in ("shapes", "edges", "equations"):
        assert f'href="#proof-{kind}"' in text
        assert f'id="proof-{kind}"' in text
    assert re.search(r"<dt>worst row</dt>\s*<dd>1\.2e-06</dd>", text)


def test_a_failure_is_as_plain_as_what_holds(checked: TestClient) -> None:
    text = checked.get(f"/models/llama-3-8b/{A}keys").text
    found = marks(text)
    assert found["equation"][0] == "false"
    assert "equation fails" in found["equation"][1]
    assert found["shape"][0] == "true"
    assert "row [0] is &lt;b&gt;0.5&lt;/b&gt; away" in text


def test_a_component_and_a_model_sum_up(checked: TestClient) -> None:
    for path in ("", "/blocks", "/blocks/attention"):
        text = checked.get(f"/models/llama-3-8b{path}").text
        found = marks(text)
        assert "3 shapes" in found["shape"][1]
        assert "1 of 2 equations fail" in found["equation"][1]
        assert found["equation"][0] == "false"
    model = checked.get("/models/llama-3-8b").text
    assert "1 could not be checked" in model
    assert "not verified here" in model


def test_a_model_without_a_record_says_that_it_was_not_checked(checked: TestClient) -> None:
    text = checked.get(f"/models/llama-3.1-8b/{A}queries").text
    found = marks(text)
    assert found["shape"][:2] == ("", "· shape not checked yet")
    assert "atlas check llama-3.1-8b" in text


def test_a_new_record_is_shown_at_once(checked: TestClient, catalog: Catalog, directory: Path) -> None:
    address = "/models/llama-3-70b"
    assert "shape not checked yet" in checked.get(address).text
    report = REPORT.model_copy(update={"model": "llama-3-70b"})
    Ledger(Settings(data_dir=directory), catalog).write(report, datetime.now(UTC))
    assert "3 shapes" in checked.get(address).text


def edited(store: SourceStore, files: Mapping[str, str]) -> Catalog:
    """A catalogue whose locks have other hashes for some files, as if the installed ones had been edited."""
    locks = {lock.id: lock for lock in store.locks}
    lock = locks["llama-models"]
    changed = tuple(
        file.model_copy(update={"sha256": files[file.path]}) if file.path in files else file for file in lock.files
    )
    locks["llama-models"] = lock.model_copy(update={"files": changed})
    return Catalog(SourceStore(Locks(locks), store.cache_dir))


def test_a_source_that_was_edited_is_named_and_the_pages_go_on(store: SourceStore, tmp_path: Path) -> None:
    broken = edited(store, {"models/llama3/model.py": "0" * 64})
    with TestClient(create_app(Settings(data_dir=tmp_path), catalog=broken), raise_server_exceptions=False) as client:
        for path in ("/models/llama-3-8b", "/models/smollm2-135m", f"/models/llama-3-8b/{A}queries"):
            answer = client.get(path)
            assert answer.status_code == 200, answer.text[:500]
            assert marks(answer.text)["source"][0] == "false"
        text = client.get(f"/models/llama-3-8b/{A}queries").text
        assert "is not the pinned meta-llama/llama-models models/llama3/model.py" in text
        assert "0000000000000000" in text, "both hashes are named"
        assert client.get("/").status_code == 200


def test_a_configuration_that_was_edited_leaves_the_models_that_do_not_cite_it(
    store: SourceStore, tmp_path: Path
) -> None:
    broken = edited(store, {"models/sku_list.py": "0" * 64})
    with TestClient(create_app(Settings(data_dir=tmp_path), catalog=broken), raise_server_exceptions=False) as client:
        for path in ("/", "/models/smollm2-135m", f"/models/smollm2-135m/{A}queries", "/api/models"):
            assert client.get(path).status_code == 200, path
        assert "SmolLM2 135M" in client.get("/").text
        answer = client.get("/models/llama-3-8b")
        assert answer.status_code == 500
        assert "is not the pinned meta-llama/llama-models models/sku_list.py" in answer.text
        assert "Install llama-models==0.3.0 again" in answer.text
