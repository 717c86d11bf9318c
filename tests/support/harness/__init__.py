"""Workers inside the test process, with faults, doorbells and time under the control of a test."""
