"""Connections to a transfer service."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import godwit
from airflow.sdk.bases.hook import BaseHook
from godwit import aio


class GodwitHook(BaseHook):
    """The service of a connection: its address is the host, its token the password."""

    conn_name_attr = "godwit_conn_id"
    default_conn_name = "godwit_default"
    conn_type = "godwit"
    hook_name = "godwit transfer service"

    def __init__(self, godwit_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.godwit_conn_id = godwit_conn_id

    def service(self) -> godwit.Service:
        """For tasks that wait."""
        return godwit.Service(**self._arguments())

    def asynchronous_service(self) -> aio.Service:
        """For triggers."""
        return aio.Service(**self._arguments())

    def test_connection(self) -> Tuple[bool, str]:
        """Whether the service knows the token."""
        try:
            with self.service() as service:
                return True, f"the service knows {service.user_name()}"
        except (godwit.GodwitError, ValueError) as error:
            return False, str(error)

    def _arguments(self) -> Dict[str, Any]:
        connection = self.get_connection(self.godwit_conn_id)
        host = connection.host or ""
        if host and "://" not in host:
            port = f":{connection.port}" if connection.port else ""
            host = f"{connection.schema or 'https'}://{host}{port}"
        extra = connection.extra_dejson
        return {
            "url": host or None,
            "token": connection.password or None,
            "ca": extra.get("ca"),
        }
