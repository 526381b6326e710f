"""An exhaustive model of commits: drivers, tasks, brokers and people, in every order of events to a bound. See checker.py."""
