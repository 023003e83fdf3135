"""The probe: facts, verdicts and samples of one machine, and the choice generated from them."""
