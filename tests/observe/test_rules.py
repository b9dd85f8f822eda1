"""Every alert fires and stays silent when it should: `promtool test rules`.

The series are synthetic; `test_live` checks that live nodes export the metrics of the rules.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "beanpole.rules.yml"
PAGE: Final = ROOT / "docs" / "deploying.md"
JOB: Final = 'job="beanpole"'
A: Final = f'{JOB}, instance="a"'
B: Final = f'{JOB}, instance="b"'
HOST: Final = {"job": "beanpole", "instance": "a"}
CLUSTER: Final = {"job": "beanpole"}
EVENTS: Final = f'{A}, scope="cluster"'
CERTIFICATE: Final = 'setting="peer_tls_certificate_file"'
LIST: Final = 'setting="tls_crl_file"'
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
# Their sums have no other labels than job and instance.
SUMMED: Final = (
    "BeanpoleJobsNearLimit",
    "BeanpoleConnectionsNearLimit",
    "BeanpoleConnectionsRefused",
)


class Case(NamedTuple):
    """Series that make an alert fire, series that do not, and the labels of the alert.

    Values are in promtool's notation, one a minute: `0x40` is 41 times 0, `0+5x9` adds 5.
    """

    at: str
    firing: dict[str, str]
    silent: dict[str, str]
    labels: dict[str, str]


def limit(name: str, value: int) -> dict[str, str]:
    return {f'beanpole_limit{{{A}, name="{name}"}}': f"{value}x90"}


def one(metric: str, labels: str, values: str) -> dict[str, str]:
    return {f"{metric}{{{labels}}}": values}


CASES: Final = {
    "BeanpoleNodeDown": Case("5m", one("up", A, "0x9"), one("up", A, "1 1 1 1 1 0"), HOST),
    "BeanpoleNoMajority": Case(
        "5m",
        one("beanpole_has_leader", A, "0x9") | one("beanpole_has_leader", B, "0x9"),
        one("beanpole_has_leader", A, "0x9") | one("beanpole_has_leader", B, "1x9"),
        CLUSTER,
    ),
    "BeanpoleGone": Case("5m", one("up", A, "1 1 1 stale"), one("up", A, "0x9"), CLUSTER),
    "BeanpoleNodeCutOff": Case(
        "5m", one("beanpole_has_leader", A, "0x9"), one("beanpole_has_leader", A, "1x9"), HOST
    ),
    "BeanpoleMemberAway": Case(
        "5m",
        one("beanpole_peer_up", f'{A}, peer="c"', "0x9")
        | one("beanpole_peer_up", f'{B}, peer="c"', "1x9"),
        one("beanpole_peer_up", f'{A}, peer="c"', "1x9")
        | one("beanpole_peer_up", f'{B}, peer="c"', "1 1 1 1 0"),
        CLUSTER | {"peer": "c"},
    ),
    "BeanpoleLeaderFlaps": Case(
        "60m",
        one("beanpole_leader_changes_total", A, "0+1x60"),
        one("beanpole_leader_changes_total", A, "1x30 2x30"),
        CLUSTER,
    ),
    "BeanpoleNotServing": Case(
        "10m", one("beanpole_serving", A, "0x20"), one("beanpole_serving", A, "0x3 1x20"), HOST
    ),
    "BeanpoleDrainsForLong": Case(
        "30m", one("beanpole_draining", A, "1x40"), one("beanpole_draining", A, "0x20 1x20"), HOST
    ),
    "BeanpoleFollowerBehind": Case(
        "10m",
        one("beanpole_commit_index", A, "200000x20") | one("beanpole_applied_index", B, "9x20"),
        one("beanpole_commit_index", A, "200000x20")
        | one("beanpole_applied_index", B, "190000x20"),
        {"job": "beanpole", "instance": "b"},
    ),
    "BeanpoleSlowDisk": Case(
        "20m",
        one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="0.032768"', "0+10x30")
        | one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="0.131072"', "0+100x30")
        | one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="+Inf"', "0+100x30"),
        one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="0.032768"', "0+100x30")
        | one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="0.131072"', "0+100x30")
        | one("beanpole_fsync_duration_seconds_bucket", f'{A}, le="+Inf"', "0+100x30"),
        HOST,
    ),
    "BeanpoleDiskHangs": Case(
        "5m",
        one("beanpole_disk_lag_seconds", A, "2x9"),
        one("beanpole_disk_lag_seconds", A, "0x9"),
        HOST,
    ),
    "BeanpoleDiskLow": Case(
        "10m",
        one("beanpole_disk_free_bytes", A, "15x20")
        | one("beanpole_disk_reserve_bytes", A, "10x20"),
        one("beanpole_disk_free_bytes", A, "25x20")
        | one("beanpole_disk_reserve_bytes", A, "10x20"),
        HOST,
    ),
    "BeanpoleDiskFull": Case(
        "5m",
        one("beanpole_disk_free_bytes", A, "5x20") | one("beanpole_disk_reserve_bytes", A, "10x20"),
        one("beanpole_disk_free_bytes", A, "15x20")
        | one("beanpole_disk_reserve_bytes", A, "10x20"),
        HOST,
    ),
    "BeanpoleQueueNearLimit": Case(
        "10m",
        one("beanpole_queue_bytes", EVENTS, "81x20") | limit("queue_bytes_max", 100),
        one("beanpole_queue_bytes", EVENTS, "79x20") | limit("queue_bytes_max", 100),
        HOST,
    ),
    "BeanpoleJobsNearLimit": Case(
        "10m",
        # All that jobs_max counts: `beanpole_jobs` has neither kept jobs nor templates of qless.
        one("beanpole_protocol_jobs", f'{EVENTS}, protocol="workq", state="kept"', "60x20")
        | one("beanpole_protocol_jobs", f'{EVENTS}, protocol="qless", state="ready"', "15x20")
        | one("beanpole_qless_jobs", f'{EVENTS}, state="recurring"', "15x20")
        | limit("jobs_max", 100),
        one("beanpole_protocol_jobs", f'{EVENTS}, protocol="workq", state="kept"', "60x20")
        | one("beanpole_protocol_jobs", f'{EVENTS}, protocol="qless", state="ready"', "15x20")
        # The same jobs by qless's own states.
        | one("beanpole_qless_jobs", f'{EVENTS}, state="waiting"', "15x20")
        | limit("jobs_max", 100),
        HOST,
    ),
    **{
        f"Beanpole{name.capitalize()}NearLimit": Case(
            "10m",
            one(f"beanpole_{name}", EVENTS, "81x20") | limit(f"{name}_max", 100),
            one(f"beanpole_{name}", EVENTS, "79x20") | limit(f"{name}_max", 100),
            HOST,
        )
        for name in ("tubes", "sessions")
    },
    "BeanpoleConnectionsNearLimit": Case(
        "10m",
        one("beanpole_connections", f'{A}, protocol="beanstalk"', "50x20")
        | one("beanpole_connections", f'{A}, protocol="workq"', "40x20")
        | limit("connections_max", 100),
        one("beanpole_connections", f'{A}, protocol="beanstalk"', "50x20")
        | limit("connections_max", 100),
        HOST,
    ),
    "BeanpoleConnectionsRefused": Case(
        "10m",
        one("beanpole_connections_refused_total", f'{A}, protocol="beanstalk"', "0x5 3x20"),
        one("beanpole_connections_refused_total", f'{A}, protocol="beanstalk"', "3x20"),
        HOST,
    ),
    "BeanpoleDescriptorsNearLimit": Case(
        "10m",
        one("process_open_fds", A, "90x20")
        | one("process_max_fds", A, "100x20")
        | one("beanpole_serving", A, "1x20"),
        # The descriptors of another program.
        one("process_open_fds", A, "90x20") | one("process_max_fds", A, "100x20"),
        HOST,
    ),
    "BeanpoleReadyGrows": Case(
        "90m",
        one(
            "beanpole_queue_jobs",
            f'{EVENTS}, protocol="beanstalk", queue="mail", state="ready"',
            "0+500x120",
        ),
        one(
            "beanpole_queue_jobs",
            f'{EVENTS}, protocol="beanstalk", queue="mail", state="ready"',
            "20000x120",
        ),
        CLUSTER | {"protocol": "beanstalk", "queue": "mail"},
    ),
    "BeanpoleOldReadyJob": Case(
        "15m",
        one("beanpole_queue_ready_age_seconds", f'{EVENTS}, protocol="workq", queue="q"', "700x20"),
        # An age below the limit does not fire, even for a long queue.
        one("beanpole_queue_ready_age_seconds", f'{EVENTS}, protocol="workq", queue="q"', "500x20"),
        CLUSTER | {"protocol": "workq", "queue": "q"},
    ),
    "BeanpoleBuriedGrows": Case(
        "60m",
        one("beanpole_protocol_jobs", f'{EVENTS}, protocol="workq", state="buried"', "0+5x60"),
        one("beanpole_protocol_jobs", f'{EVENTS}, protocol="workq", state="buried"', "900x60"),
        CLUSTER | {"protocol": "workq"},
    ),
    "BeanpoleTimeouts": Case(
        "45m",
        one("beanpole_protocol_timeouts_total", f'{EVENTS}, protocol="gearman"', "0+120x60"),
        one("beanpole_protocol_timeouts_total", f'{EVENTS}, protocol="gearman"', "0+30x60"),
        CLUSTER | {"protocol": "gearman"},
    ),
    "BeanpoleLoopLate": Case(
        "10m",
        one("beanpole_loop_lag_mean_seconds", A, "0.3x20"),
        one("beanpole_loop_lag_mean_seconds", A, "0.01x20"),
        HOST,
    ),
    "BeanpoleSnapshotStale": Case(
        "30m",
        one("beanpole_snapshot_behind_bytes", A, "300x30")
        | one("beanpole_snapshot_bytes", A, "10x30")
        | limit("snapshot_bytes_min", 100),
        # The log may grow to the size of the last snapshot.
        one("beanpole_snapshot_behind_bytes", A, "300x30")
        | one("beanpole_snapshot_bytes", A, "290x30")
        | limit("snapshot_bytes_min", 100),
        HOST,
    ),
    "BeanpoleEventsLost": Case(
        "30m",
        one("beanpole_events_lost_total", A, "0x10 7x40"),
        one("beanpole_events_lost_total", A, "7x60"),
        HOST,
    ),
    "BeanpoleAuditLost": Case(
        "30m",
        one("beanpole_audit_lost_total", A, "0x10 7x40"),
        one("beanpole_audit_lost_total", A, "7x60"),
        HOST,
    ),
    "BeanpoleCertificateEnds": Case(
        "90m",
        one("beanpole_tls_expiry_timestamp_seconds", f"{A}, {CERTIFICATE}", f"{13 * 86400}x100"),
        one("beanpole_tls_expiry_timestamp_seconds", f"{A}, {CERTIFICATE}", f"{15 * 86400}x100"),
        CLUSTER | {"setting": "peer_tls_certificate_file"},
    ),
    "BeanpoleRevocationListEnds": Case(
        "30m",
        one("beanpole_tls_expiry_timestamp_seconds", f"{A}, {LIST}", f"{6 * 3600}x60"),
        one("beanpole_tls_expiry_timestamp_seconds", f"{A}, {LIST}", f"{7 * 3600}x60"),
        CLUSTER | {"setting": "tls_crl_file"},
    ),
    "BeanpoleVersionsDiffer": Case(
        "90m",
        one("beanpole_build_info", f'{A}, version="0.3.0"', "1x100")
        | one("beanpole_build_info", f'{B}, version="0.4.0"', "1x100"),
        one("beanpole_build_info", f'{A}, version="0.4.0"', "1x100")
        | one("beanpole_build_info", f'{B}, version="0.4.0"', "1x100"),
        CLUSTER,
    ),
    "BeanpoleUpgradeNotFinalized": Case(
        "25h",
        one("beanpole_machine_version_known", A, "4x1600")
        | one("beanpole_machine_version", A, "3x1600"),
        one("beanpole_machine_version_known", A, "4x1600")
        | one("beanpole_machine_version", A, "4x1600"),
        CLUSTER,
    ),
}


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def judge(
    name: str,
    series: dict[str, str],
    fires: bool,
    directory: Path,
    more: Mapping[str, str] = NO_LABELS,
) -> str:
    """Return promtool's errors, or an empty string if the alert behaves as expected."""
    case, rule = CASES[name], rules()[name]
    expected = [
        {
            "exp_labels": {**case.labels, **rule["labels"], **more},
            "exp_annotations": rule["annotations"],
        }
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": name, "exp_alerts": expected if fires else []}
        ],
    }
    path = directory / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
    done = promtool("test", "rules", str(path))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_every_alert_has_its_cases_and_its_words() -> None:
    assert list(rules()) == list(CASES)
    page = PAGE.read_text()
    for name in CASES:
        assert f"`{name}`" in page, f"{name} is not in {PAGE}"


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_it_fires(name: str, tmp_path: Path) -> None:
    assert not (found := judge(name, CASES[name].firing, True, tmp_path)), found


@pytest.mark.parametrize("name", CASES)
def test_it_is_silent(name: str, tmp_path: Path) -> None:
    assert not (found := judge(name, CASES[name].silent, False, tmp_path)), found


@pytest.mark.parametrize("name", CASES)
def test_it_fires_whatever_labels_an_operator_adds(name: str, tmp_path: Path) -> None:
    """The Prometheus operator gives each series the namespace, the pod and so on."""
    found = {
        series.replace('instance="a"', 'instance="a", pod="p"').replace(
            'instance="b"', 'instance="b", pod="q"'
        ): values
        for series, values in CASES[name].firing.items()
    }
    pod = {"a": "p", "b": "q"}.get(CASES[name].labels.get("instance", ""))
    kept = {} if pod is None or name in SUMMED else {"pod": pod}
    assert not (words := judge(name, found, True, tmp_path, kept)), words


def test_a_cluster_of_which_no_node_answers_has_no_majority(tmp_path: Path) -> None:
    down = one("up", A, "0x9") | one("up", B, "0x9")
    assert not (found := judge("BeanpoleNoMajority", down, True, tmp_path)), found
    starting = one("up", A, "0x9") | one("up", B, "1x9")
    assert not (found := judge("BeanpoleNoMajority", starting, False, tmp_path)), found


def test_an_upgrade_can_end_when_all_programs_know_the_newer_version(tmp_path: Path) -> None:
    mixed = CASES["BeanpoleUpgradeNotFinalized"].firing | one(
        "beanpole_machine_version_known", B, "3x1600"
    )
    assert not (found := judge("BeanpoleUpgradeNotFinalized", mixed, False, tmp_path)), found


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("BeanpoleReadyGrows", "0x30 90000x90"),
        ("BeanpoleBuriedGrows", "0 90000x90"),
        ("BeanpoleTimeouts", "90000x24 0 90000x13 0 90000x90"),
    ],
)
def test_a_node_that_starts_is_no_growth(name: str, starts: str, tmp_path: Path) -> None:
    """It counts up from its snapshot again; the other two nodes show that nothing grew."""
    [series] = CASES[name].firing
    others = [series.replace('instance="a"', f'instance="{node}"') for node in "bc"]
    cluster = {series: starts} | dict.fromkeys(others, "90000x120")
    assert not (found := judge(name, cluster, False, tmp_path)), found


def test_a_wrong_case_is_found(tmp_path: Path) -> None:
    assert judge("BeanpoleNodeDown", CASES["BeanpoleNodeDown"].silent, True, tmp_path)
