"""Facts of the machine: what distinguishes two of them, and what one moment or one boot alone has."""

from lab.model import facts

HERE = {"cpu": "AMD EPYC", "cpu_stepping": "1", "cpu_mhz": "2445.4", "boot_id": "a", "kernel": "6.1"}


def test_the_processor_is_recorded() -> None:
    found = facts.read_machine_facts()
    assert {"cpu_model", "cpu_stepping", "cpu_mhz", "cpu_caches", "cpu_siblings", "boot_id"} <= found.keys()
    assert all(found.values()), "what cannot be seen says so"
    assert found.keys() >= facts.ADDED | facts.EVERY_BOOT


def test_another_stepping_is_another_machine_and_a_new_boot_and_another_clock_are_none() -> None:
    """Nor is what an older run did not record; a fact of the target that one lacks is a difference, as ever."""
    assert facts.list_differences(HERE, HERE | {"cpu_stepping": "2"}) == ["cpu_stepping"]
    assert facts.list_differences(HERE, HERE | {"kernel": "6.2", "cpu": "Xeon"}) == ["cpu", "kernel"]
    assert facts.list_differences(HERE, HERE | {"boot_id": "b", "cpu_mhz": "2100.0"}) == []
    older = {name: value for name, value in HERE.items() if not name.startswith("cpu_")}
    assert facts.list_differences(older, HERE) == facts.list_differences(HERE, older) == []
    assert facts.list_differences(older, HERE | {"nginx": "1.22"}) == ["nginx"]
