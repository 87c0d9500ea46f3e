"""Sites with a Kafka of their own, and what follows from them for a query (rule-37)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.model.child_logs import LogGroups
from slackwater.model.windows import WindowSpec


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """A site with a Kafka of its own; addresses are ``HOST:PORT``.

    ``centre``: where the site finds the Kafka of the centre; None: the centre has nothing of it.
    ``bootstrap``: its own; None: that of its command line, or an embedded one. ``kafka_config``: a
    file of the site's machines, or a folder with one, that has the credentials for the centre.
    """

    name: str
    centre: str | None = None
    bootstrap: str | None = None
    kafka_config: str | None = None


@dataclass(frozen=True, slots=True)
class UplinkSpec:
    """Of a query at a site: which children it is at the centre, and how that is reached.

    ``children``: of each child at the site, in order, its number at the centre.
    """

    site: str
    centre: str
    children: tuple[int, ...]
    kafka_config: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UplinkSpec:
        """The inverse of ``dataclasses.asdict``; a site had one child before, ``child``."""
        values = dict(data)
        children = tuple(values.pop("children", ())) or (values.pop("child"),)
        return cls(**values, children=children)


class ChildrenAtSites:
    """What a query's ``sites`` mean: by child, the site that has it; ``child_groups`` names all."""

    __slots__ = ()
    sites: tuple[str, ...]
    child_groups: LogGroups
    window: WindowSpec | None
    uplink: UplinkSpec | None

    def is_remote(self, child: int) -> bool:
        """Whether a site has the child: here are its merged panes only."""
        return bool(self.sites) and bool(self.sites[child])

    @property
    def has_remote(self) -> bool:
        """Whether a site has any child."""
        return any(self.sites)

    @property
    def spans_sites(self) -> bool:
        """Whether other places have a part of the query: it is at a site, or a site has a child."""
        return self.has_remote or self.uplink is not None

    @property
    def is_aggregated(self) -> bool:
        """Whether readings of any child are aggregated here."""
        return self.window is not None and not (self.sites and all(self.sites))

    @property
    def remote_sources(self) -> frozenset[str]:
        """The streams that sites read."""
        groups = zip(self.child_groups, self.sites, strict=False)
        return frozenset(source for (_, of), site in groups if site for source in of)
