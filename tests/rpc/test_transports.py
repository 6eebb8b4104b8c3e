"""Every transport passes the one kit."""

from ludus.testing.transports import TransportConformance


class TestMemory(TransportConformance):
    transport = "memory"


class TestUnix(TransportConformance):
    transport = "unix"


class TestZmq(TransportConformance):
    transport = "zmq"
