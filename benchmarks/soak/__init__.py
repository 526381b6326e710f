"""`make soak`: two streams write for minutes while brokers restart. No row may be lost or doubled, and memory must stay flat."""
