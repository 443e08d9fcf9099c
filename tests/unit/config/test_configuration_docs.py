"""docs/configuration.md is up to date, and settings with an effect are used in the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.config.broker import broker_settings
from ottla.config.topic import SYNONYMS, TOPIC_SETTINGS

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src" / "ottla"
PAGE = (ROOT / "docs" / "configuration.md").read_text()
BROKER_SETTINGS = broker_settings()
SYNONYM_NAMES = {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms}


def source_outside_config() -> str:
    """Return all code that could use a setting.

    Not the wire's messages and the quorum's own settings, whose fields have similar names.
    """
    return "\n".join(
        path.read_text()
        for path in SOURCES.rglob("*.py")
        if not {"config", "wire", "client", "raft"} & set(path.relative_to(SOURCES).parts[:1])
    )


def test_the_page_is_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", sorted({*BROKER_SETTINGS, *TOPIC_SETTINGS}))
def test_every_setting_is_on_the_page(name: str) -> None:
    settings = (BROKER_SETTINGS.get(name), TOPIC_SETTINGS.get(name))
    if any(setting.internal for setting in settings if setting):
        return
    assert f"`{name}`" in PAGE


def test_broker_settings_have_the_effect_the_page_says() -> None:
    code = source_outside_config()
    resolved = "\n".join(path.read_text() for path in (SOURCES / "config").rglob("*.py"))
    refused_by_its_validator = {"authorizer.class.name"}
    for name in BROKER_SETTINGS.keys() - SYNONYM_NAMES - refused_by_its_validator:
        setting = BROKER_SETTINGS[name]
        used = bool(re.search(rf"\.{setting.attribute}\b", code)) or f'values["{name}"]' in resolved
        assert used == setting.effective, name


def test_topic_settings_have_the_effect_the_page_says() -> None:
    code = source_outside_config()
    through_max_segment_ms = {"segment.ms", "max.compaction.lag.ms"}
    assert "config.max_segment_ms" in code
    through_kept_local = {"local.retention.bytes", "local.retention.ms"}
    assert "config.kept_local_bytes" in code
    assert "config.kept_local_ms" in code
    checked_when_it_is_set = {"remote.log.delete.on.disable"}
    elsewhere = through_max_segment_ms | through_kept_local | checked_when_it_is_set
    for name, setting in TOPIC_SETTINGS.items():
        used = bool(re.search(rf"\.{setting.attribute}\b", code)) or name in elsewhere
        assert used == setting.effective or setting.internal, name
