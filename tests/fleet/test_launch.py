"""Starting parts of a fleet: a start that fails leaves nothing behind and can be repeated."""

from __future__ import annotations

import asyncio

import pytest

from trimtab.errors import BadInput, NotStartedHere, Unreachable
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import AddBroker, ListBrokers, RemoveBroker
from trimtab.fleet.site import launch as launch_module
from trimtab.fleet.site.launch import Launch
from trimtab.fleet.site.supervisor import Child


def running(launch):
    return sorted(child.name for child in launch.supervisor.children)


def test_a_broker_that_could_not_be_started_as_a_whole_is_ended_and_can_be_started_again(
    tmp_path, nats_server, monkeypatch
):
    config, calls = launch_module.server.store_config, []

    def failing(fleet, store):
        calls.append(store.number)
        if len(calls) == 2:
            raise BadInput("the disk is full")
        return config(fleet, store)

    monkeypatch.setattr(launch_module.server, "store_config", failing)

    async def scenario():
        async with Launch(tmp_path / "home") as launch:
            await launch.start_hub()
            before = running(launch)

            first, second = await asyncio.gather(
                launch.start_broker("b1", stores=3), launch.start_broker("b1"), return_exceptions=True
            )
            assert str(first) == "the disk is full"
            assert str(second) == "broker 'b1' runs already"  # and it has not ended parts of the other
            assert running(launch) == before
            with pytest.raises(NotStartedHere):
                await launch.end_broker("b1")

            await launch.start_broker("b1")
            await launch.ready(["b1"])

    asyncio.run(scenario())


def test_a_server_that_does_not_listen_is_ended(tmp_path, nats_server, monkeypatch):
    monkeypatch.setattr(launch_module.server, "hub_config", lambda *_: "not a configuration")

    async def scenario():
        async with Launch(tmp_path / "home") as launch:
            with pytest.raises(BadInput, match="nats-server 'hub' does not start"):
                await launch.start_hub()
            assert running(launch) == []

    asyncio.run(scenario())


def test_a_pipeline_that_never_gets_ready_is_ended(tmp_path, nats_server, monkeypatch):
    monkeypatch.setattr(launch_module, "PIPELINE_S", 0.3)

    async def scenario():
        async with Launch(tmp_path / "home") as launch:

            def sleeps(name, *_):
                launch.supervisor.start(Child(name, ["sleep", "3600"], tmp_path / "log"))

            monkeypatch.setattr(launch, "_process", sleeps)
            for _ in range(2):
                with pytest.raises(BadInput, match=r"the pipeline is not ready within 0.3 s"):
                    await launch.start_pipeline()
                assert running(launch) == []

    asyncio.run(scenario())


def test_a_broker_that_was_started_is_told_of_even_if_it_is_not_ready(tmp_path, nats_server, monkeypatch):
    async def scenario():
        async with Launch(tmp_path / "home") as launch:
            await launch.start_hub()
            await launch.start_broker("b1")
            await launch.ready(["b1"])
            await launch.serve_hosts()
            admin = await launch.admin()
            (tmp_path / "home" / "b1" / "replica.json").touch()

            async def late(_):
                raise Unreachable("not ready within 20 s: b2")

            monkeypatch.setattr(launch, "ready", late)
            with pytest.raises(Unreachable, match="broker 'b2' was started, but not ready within 20 s: b2") as caught:
                await wire.ask(admin, AddBroker("b2"), 30.0)
            assert caught.value.changed
            assert "b2" in launch.sites

            await wire.ask(admin, RemoveBroker("b1"), 30.0)
            assert "b1" not in (await wire.ask(admin, ListBrokers())).entries
            assert not (tmp_path / "home" / "b1" / "replica.json").exists()

            child = launch.supervisor.find("keeper")
            await launch.supervisor.remove(child)
            with pytest.raises(Unreachable, match="broker 'b2' was ended, but nobody answers") as caught:
                await wire.ask(admin, RemoveBroker("b2"), 30.0)
            assert caught.value.changed

    asyncio.run(scenario())
