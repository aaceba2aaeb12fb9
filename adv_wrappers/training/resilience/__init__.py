"""Resilience and robustness of Behzadan and Hsu (2019): a DQN that is trained against an adversary."""
