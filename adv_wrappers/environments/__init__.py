"""What threats are played on: environments by id, checked, saved, restored, with parameters that can be set."""
