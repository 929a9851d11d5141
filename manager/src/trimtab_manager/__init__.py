"""Manager of trimtab: SGLang engine lifecycle and the simulated engine."""
