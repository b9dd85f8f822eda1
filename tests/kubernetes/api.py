"""A double of the Kubernetes API with one StatefulSet, for the look-ups of a chart.

It only serves helm's requests to a cluster (`helm template --dry-run=server`); chaos/statefulset
runs pods.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

# The kinds of the chart, which helm requests by group.
KINDS: Final = {
    "v1": ("Service", "ServiceAccount"),
    "apps/v1": ("StatefulSet",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
}


def resources(group_version: str) -> dict[str, Any]:
    """Return the API's list of the kinds in a group."""
    found = [
        {"name": f"{kind.lower()}s", "namespaced": True, "kind": kind, "verbs": ["get"]}
        for kind in KINDS[group_version]
    ]
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": found}


def group(group_version: str) -> dict[str, Any]:
    version = {"groupVersion": group_version, "version": "v1"}
    name = group_version.partition("/")[0]
    return {"name": name, "versions": [version], "preferredVersion": version}


GROUPS: Final = [name for name in KINDS if "/" in name]
PAGES: Final[dict[str, dict[str, Any]]] = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": resources("v1"),
    "/apis": {"kind": "APIGroupList", "groups": [group(name) for name in GROUPS]},
    **{f"/apis/{name}": resources(name) for name in GROUPS},
}


@contextlib.contextmanager
def cluster_with(name: str, replicas: int, ready: int) -> Iterator[str]:
    """Serve the StatefulSet of a release in `default`; yield the address of the API.

    Args:
        name: of the release.
        replicas: its number of pods.
        ready: how many of them are ready.
    """
    found = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": name,
                "meta.helm.sh/release-namespace": "default",
            },
        },
        "spec": {"replicas": replicas},
        # The API leaves out a zero.
        "status": {"readyReplicas": ready} if ready else {},
    }
    pages = {**PAGES, f"/apis/apps/v1/namespaces/default/statefulsets/{name}": found}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            body = page or {
                "kind": "Status",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            data = json.dumps({"apiVersion": "v1", **body}).encode()
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
