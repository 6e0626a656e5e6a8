-- Wait for the claims of limited queue $1, and have those to come wait, until this transaction ends.
SELECT FROM {schema}.limits WHERE queue = $1 FOR UPDATE
