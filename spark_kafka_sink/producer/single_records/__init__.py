"""Records sent one by one: checked, buffered, appended as columns, and told what became of them."""
