"""Statements on suspended runs: what they wait for, how a wait ends, and the question in the inbox."""
