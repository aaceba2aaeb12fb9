"""Make the checkpoints in this folder, and what their own libraries answer: one library a call, into answers.json.

pip install rsl-rl-lib==5.5.1 && python make.py rsl_rl_5    # likewise 3.1.2 for rsl_rl_3, 2.3.3 for rsl_rl_2
pip install rl-games==1.6.5 && python make.py rl_games
"""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
FEATURES, ACTIONS, STEPS, ROWS = 6, 2, 3, 4


def rsl_rl_2() -> tuple[dict, object, object]:
    """A perceptron, whose normaliser stands beside it."""
    from rsl_rl.modules import ActorCritic, EmpiricalNormalization

    policy = ActorCritic(FEATURES, FEATURES, ACTIONS, [8, 5], [4], "elu")
    normalizer = EmpiricalNormalization([FEATURES])
    normalizer(2 + 3 * torch.randn(64, FEATURES))
    normalizer.eval()
    saved = {"model_state_dict": policy.state_dict(), "obs_norm_state_dict": normalizer.state_dict(), "iter": 1}
    return saved, lambda obs: policy.act_inference(normalizer(obs)), lambda: policy.std


def rsl_rl_3() -> tuple[dict, object, object]:
    """An LSTM of two layers with a normaliser of its own, and standard deviations by their logarithm."""
    from rsl_rl.modules import ActorCriticRecurrent
    from tensordict import TensorDict

    def groups(obs):
        return TensorDict({"policy": obs}, batch_size=len(obs))

    obs = groups(2 + 3 * torch.randn(64, FEATURES))
    policy = ActorCriticRecurrent(
        obs, {"policy": ["policy"], "critic": ["policy"]}, ACTIONS, actor_obs_normalization=True,
        actor_hidden_dims=[8], critic_hidden_dims=[4], activation="tanh", noise_std_type="log", init_noise_std=0.5,
        rnn_hidden_dim=7, rnn_num_layers=2,
    )  # fmt: skip
    policy.update_normalization(obs)
    policy.eval()
    return {"model_state_dict": policy.state_dict()}, lambda obs: policy.act_inference(groups(obs)), policy.log_std.exp


def rsl_rl_5() -> tuple[dict, object, object]:
    """A perceptron with a normaliser, of the release that saves the actor apart."""
    from rsl_rl.models import MLPModel
    from tensordict import TensorDict

    def groups(obs):
        return TensorDict({"policy": obs}, batch_size=len(obs))

    obs = groups(2 + 3 * torch.randn(64, FEATURES))
    gaussian = {"class_name": "rsl_rl.modules.distribution:GaussianDistribution", "init_std": 0.5}
    actor = MLPModel(obs, {"actor": ["policy"]}, "actor", ACTIONS, [8, 5], "swish", True, gaussian)
    actor.update_normalization(obs)
    actor.eval()
    return (
        {"actor_state_dict": actor.state_dict()},
        lambda obs: actor(groups(obs)),
        lambda: actor.distribution.std_param,
    )


def rl_games() -> tuple[dict, object, object]:
    """A perceptron of A2C with running statistics; its best reward is a number of NumPy."""
    import numpy as np
    from rl_games.algos_torch.models import ModelA2CContinuousLogStd
    from rl_games.algos_torch.network_builder import A2CBuilder

    start = {"name": "default"}
    builder = A2CBuilder()
    builder.load({
        "separate": False,
        "space": {"continuous": {
            "mu_activation": "None", "sigma_activation": "None", "mu_init": start,
            "sigma_init": {"name": "const_initializer", "val": -0.7}, "fixed_sigma": True,
        }},
        "mlp": {"units": [8, 5], "activation": "elu", "initializer": start},
    })  # fmt: skip
    model = ModelA2CContinuousLogStd(builder).build({
        "actions_num": ACTIONS, "input_shape": (FEATURES,), "num_seqs": 1, "value_size": 1,
        "normalize_value": False, "normalize_input": True,
    })  # fmt: skip
    model.train()
    model.norm_obs(2 + 3 * torch.randn(64, FEATURES))
    model.eval()

    def acts(obs):
        return model({"is_train": False, "obs": obs, "rnn_states": None})["mus"].clamp(-1, 1)

    return {"model": model.state_dict(), "last_mean_rewards": np.float32(3)}, acts, model.a2c_network.sigma.exp


if __name__ == "__main__":
    name = sys.argv[1]
    torch.manual_seed(0)
    saved, acts, std = globals()[name]()
    torch.save(saved, HERE / f"{name}.pt")
    torch.manual_seed(1)
    obs = 2 + 3 * torch.randn(STEPS, ROWS, FEATURES)
    with torch.no_grad():
        answers = {
            "observations": obs.tolist(),
            "actions": [acts(step).tolist() for step in obs],
            "std": std().tolist(),
        }
    known = json.loads((HERE / "answers.json").read_text()) if (HERE / "answers.json").exists() else {}
    (HERE / "answers.json").write_text(json.dumps(known | {name: answers}))
