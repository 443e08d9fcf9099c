"""A client of the simulation of one node.

It knows what the model knows, so that most of what it asks for makes sense.
"""

from __future__ import annotations

from random import Random as Generator
from typing import Protocol

from ottla.sim.clients.connected_client import ConnectedClient, Run
from ottla.sim.model.batch import Sent
from ottla.sim.model.cluster import ClusterModel, Place
from ottla.sim.profile import Profile


class Environment(Run, Protocol):
    """What a client asks of the simulation it is part of."""

    model: ClusterModel
    profile: Profile


class Client(ConnectedClient):
    """Base of all clients of one node."""

    environment: Environment

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)

    @property
    def pipelining(self) -> int:
        return self.environment.profile.pipelining

    # -- choices -------------------------------------------------------------------------

    def pick_place(self) -> Place | None:
        """Return any partition there is."""
        places = self.environment.model.places()
        return self.chance.choice(places) if places else None

    def new_sent(self, sent: Sent) -> Sent:
        """Make a batch known before it is sent."""
        self.environment.model.sents[sent.uid] = sent
        return sent
