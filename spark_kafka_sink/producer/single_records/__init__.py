"""Records sent one by one: checked, gathered, appended as columns, and told what became of them."""
