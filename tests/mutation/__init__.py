"""Puts small faults into the deciding code, and counts those that a test notices."""
