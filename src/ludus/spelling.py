"""The name that was probably meant: by its spelling, or because other libraries call the same thing so.

nearest("polcy", ["policy", "trainer"])                     # Did you mean 'policy'?
suggest("total_timesteps", ["steps", "eval_max_steps"])     # ["steps"]: as Stable-Baselines3 calls it
our_name("--env-id")                                        # "env"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["OTHER_ALGORITHMS", "absence", "nearest", "our_name", "suggest", "variant"]

_CUTOFF = 0.65  # of difflib: below it, words have little more in common than that they are words
_FEW, _FEW_CUTOFF = 8, 0.6  # among few words the nearest is more likely the one that was meant

_OTHER_NAMES = {  # ours → those of Stable-Baselines3, RLlib, CleanRL, TorchRL, Sample Factory
    "learning_rate": "lr alpha step_size",
    "steps": "total_timesteps timesteps total_steps num_timesteps env_steps total_env_steps train_for_env_steps "
    "total_frames num_frames max_timesteps stop_timesteps n_timesteps num_env_steps n_env_steps max_env_steps "
    "max_steps timesteps_total num_steps_total train_steps num_train_steps max_frames frames iterations num_iterations "
    "n_iterations n_iter max_iterations training_iterations num_updates n_updates updates",
    "num_envs": "n_envs envs num_env num_environments num_envs_per_worker num_envs_per_env_runner env_batch_size",
    "simulators": "num_workers n_workers workers num_env_runners num_rollout_workers num_actors actors n_jobs num_cpus",
    "trainers": "num_learners learners num_trainers world_size",
    "num_steps": "n_steps rollout rollout_length rollout_steps rollout_fragment_length unroll_length horizon nsteps",
    "model": "network net custom_model",
    "minibatch_size": "batch_size mini_batch_size sgd_minibatch_size train_batch_size minibatch num_minibatches",
    "entropy_coef": "ent_coef entropy_coeff entropy_coefficient entropy_cost entropy_weight entropy_bonus",
    "value_coef": "vf_coef vf_loss_coeff value_loss_coef value_loss_coeff critic_coef critic_coeff baseline_cost",
    "lam": "gae_lambda gae lambda lambda_ lmbda",
    "gamma": "discount discount_factor",
    "clip": "clip_range clip_coef clip_param clip_epsilon clip_eps clip_ratio ppo_clip ppo_clip_ratio eps_clip",
    "num_epochs": "n_epochs epochs update_epochs num_sgd_iter ppo_epochs ppo_epoch",
    "anneal": "anneal_lr lr_schedule lr_decay linear_lr",
    "normalise_advantage": "norm_adv normalize_advantage normalize_advantages",
    "normalise_obs": "norm_obs normalize normalize_obs normalize_input normalize_observation normalize_observations",
    "max_grad_norm": "grad_clip clip_grad clip_gradients gradient_clip max_gradient_norm grad_norm clip_grad_norm",
    "hidden": "net_arch hidden_sizes hidden_size hidden_dim fcnet_hiddens hiddens layers num_cells",
    "recurrent": "use_lstm lstm use_rnn rnn gru use_gru",
    "recurrent_size": "lstm_cell_size lstm_hidden_size rnn_size rnn_hidden_size",
    "adam_eps": "adam_epsilon optimizer_eps eps",
    "log_std": "log_std_init init_log_std initial_log_std",
    "rho_max": "vtrace_clip_rho_threshold vtrace_rho clip_rho_threshold",
    "precision": "amp bf16 fp16 mixed_precision dtype",
    "accumulate": "grad_accum gradient_accumulation gradient_accumulation_steps",
    "device": "cuda gpu gpus use_gpu num_gpus no_cuda no_gpu use_cuda cpu",
    "env": "env_id env_name environment task gym_id game gym_env",
    "env_args": "env_kwargs env_config env_options",
    "algorithm": "algo run_algo alg agent trainer_class",
    "seed": "random_seed rng_seed",
    "trial": "name exp_name run_name experiment_name experiment run_id",
    "project": "logdir log_dir out_dir output_dir save_path storage_path tensorboard_log train_dir",
    "checkpoint_seconds": "save_freq checkpoint_freq checkpoint_frequency save_every_sec save_interval",
    "eval_episodes": "n_eval_episodes num_eval_episodes evaluation_duration",
    "engine": "backend launcher",
    "dataset": "dataset_path dataset_id dataset_name data_path datasets offline_data input_ expert_data demos",
    "capacity": "buffer_size replay_size replay_buffer_size replay_capacity memory_size buffer_capacity",
    "min_size": "learning_starts start_steps warmup_steps start_timesteps min_replay_size min_buffer_size "
    "num_steps_sampled_before_learning_starts",
    "updates_per_step": "train_freq train_frequency gradient_steps utd utd_ratio replay_ratio updates_per_env_step",
    "tau": "polyak soft_tau target_tau polyak_tau",
    "n_step": "multi_step n_step_return num_n_step",
    "prioritised": "prioritized per prioritized_replay prioritised_replay use_per",
    "priority_exponent": "per_alpha prioritized_replay_alpha priority_alpha",
    "importance_exponent": "per_beta prioritized_replay_beta priority_beta",
    "normalise_rewards": "norm_reward normalize_reward normalize_rewards",
    "double": "double_q double_dqn use_double",
    "dueling": "dueling_dqn use_dueling",
    "distribution": "distributional",
    "num_atoms": "n_atoms",
    "num_quantiles": "n_quantiles",
    "target_every": "target_update_interval target_network_frequency target_network_update_freq target_update_freq",
    "epsilon_start": "exploration_initial_eps start_e initial_epsilon eps_start",
    "epsilon_end": "exploration_final_eps end_e final_epsilon eps_end min_epsilon",
    "epsilon_fraction": "exploration_fraction",
    "sequence_length": "seq_len seq_length sequence_len max_seq_len",
    "burn_in": "burnin replay_burn_in burn_in_steps",
}
_OURS = {other: ours for ours, others in _OTHER_NAMES.items() for other in others.split()}

_RESUME = "`ludus resume TRIAL` goes on with a trial that was stopped."
_WATCH = "`ludus watch TRIAL` shows a trial's policy play, and saves that with --gif."
_TENSORBOARD = "Every trial's folder has its metrics as TensorBoard events and as metrics.jsonl."
_EPSILON = ("epsilon_start", "epsilon_end", "epsilon_fraction")
_OFF_POLICY = "It belongs to algorithms that learn from replay, such as dqn."
_ENTROPY = "An entropy bonus belongs to actor-critics such as ppo, as entropy_coef; the temperature of sac is alpha."
_REPLAY = ("capacity", "min_size", "updates_per_step", "tau", "target_every", *_EPSILON)
_ABSENT = {
    "target_kl": "No update is ended early by its KL divergence; clip and num_epochs bound it.",
    "kl_coeff": "There is no penalty on the KL divergence; clip and num_epochs bound an update.",
    "clip_range_vf": "The value's loss is not clipped.",
    "clip_vloss": "The value's loss is not clipped.",
    "vf_clip_param": "The value's loss is not clipped.",
    "policy": "The network follows from the observations; hidden, recurrent and model change it.",
    "verbose": "Progress and warnings are always shown; json leaves one line for programs on standard output.",
    **dict.fromkeys(("resume", "restore", "load", "load_path", "load_model", "restore_path", "continue"), _RESUME),
    **dict.fromkeys(("resume_from", "resume_from_checkpoint", "checkpoint", "checkpoint_path", "pretrained"), _RESUME),
    **dict.fromkeys(("render", "render_mode", "no_render", "capture_video", "save_video", "record_video"), _WATCH),
    **dict.fromkeys(("track", "wandb", "use_wandb", "wandb_project_name", "tensorboard", "logger"), _TENSORBOARD),
    **dict.fromkeys(_OTHER_NAMES["entropy_coef"].split(), _ENTROPY),
    **dict.fromkeys((name for ours in _REPLAY for name in (ours, *_OTHER_NAMES[ours].split())), _OFF_POLICY),
}

_ALGORITHMS = """
iqn ddpg trpo tqc crossq redq droq ars es her cql
marwil dreamer dreamerv3 muzero coma maddpg ppg pqn reinforce vpg acer acktr
"""
OTHER_ALGORITHMS = frozenset(_ALGORITHMS.split())
"""Algorithms that people know by name and that are not here: none of ours is meant by them."""

_VARIANTS = {
    **dict.fromkeys(("recurrent_ppo", "ppo_lstm", "ppo_recurrent", "rppo", "lstm_ppo"), "ppo with --recurrent lstm"),
    **dict.fromkeys(("maskable_ppo", "ppo_mask", "mask_ppo"), "ppo: masks that an environment gives are heeded"),
    **dict.fromkeys(("ppo2", "ppo_clip", "dppo"), "ppo"),
    **dict.fromkeys(("behavior_cloning", "behaviour_cloning", "behavioral_cloning", "imitation", "il"), "bc"),
    **dict.fromkeys(("implicit_q_learning", "implicit_q"), "iql"),
    **dict.fromkeys(("alpha_zero", "az", "expert_iteration", "gumbel_alphazero"), "alphazero"),
    "a3c": "a2c, or impala for simulators that do not wait",
    **dict.fromkeys(("ddqn", "double_dqn", "nature_dqn", "deep_q"), "dqn, which is double unless --no-double"),
    **dict.fromkeys(("dueling_dqn", "d3qn"), "dqn with --dueling"),
    **dict.fromkeys(("prioritized_dqn", "prioritised_dqn", "dqn_per"), "dqn with --prioritised"),
    "c51": "dqn with --distribution c51",
    **dict.fromkeys(("qr_dqn", "qrdqn"), "dqn with --distribution qr"),
    "rainbow": "dqn with --n-step 3, --prioritised and --distribution c51",
    **dict.fromkeys(("ape_x", "apex_dqn", "ape_x_dqn"), "apex"),
    **dict.fromkeys(("drqn", "recurrent_dqn", "dqn_lstm"), "r2d2"),
}


def suggest(word: str, known: Iterable[str], *, num: int = 1) -> list[str]:
    """At most `num` of the known names, the likeliest first. A name of other libraries has ours as its only answer."""
    choices = {_plain(each): each for each in known}
    ours = _OURS.get(_plain(word))
    if ours in choices:
        return [choices[ours]]
    if absence(word) is not None:
        return []
    cutoff = _CUTOFF if len(choices) > _FEW else _FEW_CUTOFF
    return [choices[each] for each in difflib.get_close_matches(_plain(word), choices, n=num, cutoff=cutoff)]


def our_name(word: str) -> str:
    """What a setting of other libraries is called here; a word that none of them uses, as it is."""
    return _OURS.get(_plain(word), _plain(word))


def variant(algorithm: str) -> str | None:
    """How to have an algorithm that other libraries know by a name of its own."""
    return _VARIANTS.get(_plain(algorithm))


def absence(word: str, known: Iterable[str] = ()) -> str | None:
    """A sentence on a setting that other libraries have and that has no counterpart here, among the known ones."""
    if _OURS.get(_plain(word)) in {_plain(each) for each in known}:
        return None
    return _ABSENT.get(_plain(word))


def nearest(word: str, known: Iterable[str], *, max_listed: int = 8) -> str:
    """A sentence to end an error message with: the known word that was probably meant, or else some of them."""
    choices = sorted(set(known))
    near = suggest(word, choices)
    if near:
        return f"Did you mean {near[0]!r}?"
    if not choices:
        return "There are none."
    return f"There are: {', '.join(choices[:max_listed])}{', …' if len(choices) > max_listed else ''}."


def _plain(word: str) -> str:
    """`--Total-Timesteps` → `total_timesteps`."""
    return word.lstrip("-").replace("-", "_").lower()
