"""MuJoCo's models: what is written, and that nothing of it stays."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import mujoco
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import BudgetError, SimulationError

ENVS = ("Hopper-v5", "HalfCheetah-v5", "Swimmer-v5", "InvertedPendulum-v5")


def contents(model):
    """Every number of a model, by name."""
    names = [name for name in dir(model) if not name.startswith("_")]
    found = {name: getattr(model, name, None) for name in names}
    arrays = {name: value.tobytes() for name, value in found.items() if isinstance(value, np.ndarray)}
    statistics = {name: np.array(getattr(model.stat, name)).tobytes() for name in ("meaninertia", "extent", "center")}
    options = {name: np.array(getattr(model.opt, name)).tobytes() for name in ("gravity", "wind", "timestep")}
    return {**arrays, **statistics, **options}


@pytest.mark.parametrize("id", ENVS)
def test_every_parameter_is_written_and_the_model_comes_back_to_the_bit(id):
    env = gym.make(id)
    env.reset(seed=0)
    model, parameters = env.unwrapped.model, parameters_of(env)
    before, space = contents(model), parameters.space
    for place in range(len(space.nominal)):
        values = space.nominal.copy()
        values[place] += 0.5
        parameters.set(values)
        force = env.unwrapped.data.xfrc_applied
        changed = [name for name, value in contents(model).items() if value != before[name]] + ["force"] * int(
            force.any()
        )
        assert changed or space.name_of(place) in IDLE.get(id, ()), space.name_of(place)
        parameters.restore()
        assert contents(model) == before and not env.unwrapped.data.xfrc_applied.any(), space.name_of(place)


IDLE = {"Swimmer-v5": ("gravity", "slope[0]", "slope[1]")}  # which has no gravity


def test_factors_and_forces_mean_what_they_say():
    env = gym.make("HalfCheetah-v5")
    env.reset(seed=0)
    model, parameters = env.unwrapped.model, parameters_of(env)
    space, mass, inertia = parameters.space, model.body_mass.copy(), model.body_inertia.copy()
    friction, damping, gain = model.geom_friction.copy(), model.dof_damping.copy(), model.actuator_gainprm.copy()
    values = space.nominal.copy()
    for at, value in {
        "mass.torso": 2,
        "inertia.torso": 3,
        "friction": 0.5,
        "damping.bthigh": 4,
        "gravity": 1.5,
    }.items():
        values[space.places(at)] = value
    values[space.places("gain.ffoot")], values[space.places("force.bfoot")] = 0.25, (1, 2, 3)
    parameters.set(values)
    assert model.body_mass[1] == 2 * mass[1] and (model.body_mass[2:] == mass[2:]).all()
    assert np.allclose(model.body_inertia[1], 6 * inertia[1], rtol=1e-15)  # a denser body has more of it, too
    assert (model.geom_friction == 0.5 * friction).all()
    assert model.dof_damping[3] == 4 * damping[3] and (model.dof_damping[4:] == damping[4:]).all()
    assert model.opt.gravity[2] == 1.5 * -9.81
    assert model.actuator_gainprm[5, 0] == 0.25 * gain[5, 0] and model.actuator_gainprm[0, 0] == gain[0, 0]
    assert env.unwrapped.data.xfrc_applied[model.body("bfoot").id].tolist() == [1, 2, 3, 0, 0, 0]
    assert model.body_subtreemass[1] == pytest.approx(mass.sum() + mass[1])  # what follows from masses


def test_a_load_is_a_mass_at_the_centre_of_a_body_in_kilograms():
    env = gym.make("Hopper-v5")
    parameters, model = parameters_of(env), env.unwrapped.model
    mass, inertia = model.body_mass.copy(), model.body_inertia.copy()
    values = parameters.space.nominal.copy()
    values[parameters.space.places("load.torso")], values[parameters.space.places("mass.foot")] = 2.5, 2.0
    parameters.set(values)
    assert model.body_mass.tolist() == [mass[0], mass[1] + 2.5, mass[2], mass[3], 2 * mass[4]]
    assert (model.body_inertia[1] == inertia[1]).all()
    assert model.body_subtreemass[1] == pytest.approx(mass.sum() + 2.5 + mass[4])


def test_a_slope_tilts_gravity():
    env = gym.make("Ant-v5")
    parameters, model = parameters_of(env), env.unwrapped.model
    values = parameters.space.nominal.copy()
    values[parameters.space.places("slope")], values[parameters.space.places("gravity")] = (3.0, -4.0), 2.0
    parameters.set(values)
    angle = np.deg2rad(5.0)  # of the steepest ascent, along (0.6, -0.8)
    expected = [-0.6 * np.sin(angle), 0.8 * np.sin(angle), -np.cos(angle)]
    assert np.allclose(model.opt.gravity, 2 * 9.81 * np.array(expected), rtol=0, atol=1e-12)


ARM = """<mujoco>
<worldbody><body><joint name="j" axis="0 1 0" {joint}/><geom size="0.1" pos="0.5 0 0"/></body></worldbody>
<actuator><motor joint="j" {motor}/></actuator>
</mujoco>"""


class Arm(gym.Env):
    observation_space = action_space = gym.spaces.Box(-1, 1)

    def __init__(self, joint="", motor=""):
        self.model = mujoco.MjModel.from_xml_string(ARM.format(joint=joint, motor=motor))
        self.data = mujoco.MjData(self.model)


@pytest.mark.parametrize("limit", [{"joint": 'actuatorfrcrange="-4 4"'}, {"motor": 'forcerange="-4 4"'}])
def test_a_worn_actuator_has_less_torque_and_still_what_it_needs_for_little(limit):
    env = Arm(**limit)
    parameters = parameters_of(env)

    def force(control, torque):
        parameters.restore()
        values = parameters.space.nominal.copy()
        values[parameters.space.places("torque")] = torque
        parameters.set(values)
        env.data.ctrl[:] = control
        mujoco.mj_forward(env.model, env.data)
        return float(env.data.qfrc_actuator[0])

    assert [force(*at) for at in ((1, 1), (9, 1), (1, 0.5), (9, 0.5), (9, 0))] == [1, 4, 1, 2, 0]
    assert not [name for name in parameters_of(Arm()).space.names if name.startswith("torque")]  # without a limit


def test_friction_of_a_joint_holds_what_is_weaker_than_it():
    env = Arm(joint='frictionloss="0.1"')
    parameters = parameters_of(env)
    values = parameters.space.nominal.copy()
    for loss, moves in ((500.0, False), (0.0, True)):
        mujoco.mj_resetData(env.model, env.data)
        values[parameters.space.places("frictionloss.j")] = loss
        parameters.set(values)
        assert env.model.dof_frictionloss[0] == 0.1 + loss
        for _ in range(100):
            mujoco.mj_step(env.model, env.data)
        assert (abs(env.data.qpos[0]) > 0.1) == moves


def test_a_heavier_body_is_what_mujoco_makes_of_a_denser_one():
    """Against a model whose XML says so: the same steps, up to rounding."""
    env = gym.make("Hopper-v5")
    env.reset(seed=0)
    parameters, data = parameters_of(env), env.unwrapped.data
    values = parameters.space.nominal.copy()
    values[parameters.space.places("mass")] = 1.5
    parameters.set(values)
    spec = mujoco.MjSpec.from_file(env.unwrapped.fullpath)
    for geom in spec.geoms:
        geom.density *= 1.5
    other = spec.compile()
    twin = mujoco.MjData(other)
    twin.qpos[:], twin.qvel[:] = data.qpos, data.qvel
    for _ in range(50):
        for model, simulation in ((env.unwrapped.model, data), (other, twin)):
            simulation.ctrl[:] = (0.3, -0.2, 0.5)
            mujoco.mj_step(model, simulation)
    assert np.allclose(data.qpos, twin.qpos, rtol=0, atol=1e-9)


def test_wind_is_a_parameter_where_the_medium_is_denser_than_nothing():
    assert "wind" in parameters_of(gym.make("Swimmer-v5")).space.names
    assert "wind" not in parameters_of(gym.make("Hopper-v5")).space.names


def test_values_that_no_simulator_holds_are_refused_at_once():
    env = gym.make("HalfCheetah-v5")
    before = contents(env.unwrapped.model)
    for text, words in {
        "dynamics-noise:at=mass,eps=1": r"mass.torso must stay within \[0.01, 100\]",
        "dynamics-noise:at=friction,eps=1": r"friction.floor must stay within \[0.01, 100\]",
    }.items():
        with pytest.raises(BudgetError, match=words):
            adv.PerturbDynamics(env, text)
        assert contents(env.unwrapped.model) == before


def test_a_simulation_that_diverges_names_its_parameters_and_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log
    env = adv.PerturbDynamics(gym.make("HalfCheetah-v5"), "fixed-dynamics:at=gain,values=2", when="window(3,9)")
    env.reset(seed=0)
    before = contents(gym.make("HalfCheetah-v5").unwrapped.model)
    with pytest.raises(SimulationError, match=r"diverged at step 4 with gain.bthigh=2, .*: MuJoCo warned of BADQ"):
        for t in range(9):
            if t == 3:
                env.unwrapped.data.qvel[:] = 1e9
            env.step(np.ones(6, np.float32))
    assert contents(env.unwrapped.model) == before


def test_copies_begin_with_their_own_parameters():
    env = adv.PerturbDynamics(gym.make("Hopper-v5"), "fixed-dynamics:at=mass,values=1.5")
    own = env.unwrapped.model.body_mass.copy()
    env.reset(seed=0)
    first = env.step(np.zeros(3, np.float32))[0]
    assert (env.unwrapped.model.body_mass[1:] == 1.5 * own[1:]).all()
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert (other.unwrapped.model.body_mass == own).all()
        other.reset(seed=0)
        assert other.step(np.zeros(3, np.float32))[0].tobytes() == first.tobytes()
        assert (other.unwrapped.model.body_mass[1:] == 1.5 * own[1:]).all()
    assert (env.unwrapped.model.body_mass[1:] == 1.5 * own[1:]).all()


def test_nothing_is_made_anew_for_an_episode(monkeypatch):
    env = adv.PerturbDynamics(gym.make("InvertedPendulum-v5"), "dynamics-noise:at=mass,eps=0.5")
    made = []
    monkeypatch.setattr(mujoco, "MjData", lambda model, real=mujoco.MjData: made.append(1) or real(model))
    for _ in range(50):
        env.reset()
        env.step(np.zeros(1, np.float32))
    assert len(made) <= 1


def test_dm_control_has_the_same_parameters():
    pytest.importorskip("dm_control")
    env = adv.PerturbDynamics(
        adv.environments.dmc.dmc("dm_control/cartpole-balance-v0"), "fixed-dynamics:at=mass,values=2"
    )
    mass = env.unwrapped._env.physics.model.body_mass.copy()
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    assert (env.unwrapped._env.physics.model.body_mass[1:] == 2 * mass[1:]).all()
    env.reset()
    assert (env.unwrapped._env.physics.model.body_mass == mass).all()
