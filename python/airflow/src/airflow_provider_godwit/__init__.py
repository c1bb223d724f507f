"""Airflow provider of the godwit transfer service."""

from __future__ import annotations

from typing import Any, Dict

__version__ = "0.1.0"


def get_provider_info() -> Dict[str, Any]:
    """What Airflow shows of this package."""
    return {
        "package-name": "airflow-provider-godwit",
        "name": "godwit",
        "description": "Transfers by a godwit transfer service.",
        "versions": [__version__],
        "connection-types": [
            {
                "connection-type": "godwit",
                "hook-class-name": "airflow_provider_godwit.hooks.GodwitHook",
            }
        ],
    }
