from . import health_pb2 as health_pb2
from ._async import HealthServicer as _AsyncHealthServicer

SERVICE_NAME: str

class aio:
    HealthServicer = _AsyncHealthServicer
