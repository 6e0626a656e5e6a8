-- Index the keys of queue $1's ready jobs, which are at $2 in their arguments, or (NULL) do so no more. Reads the whole table.
SELECT {schema}.index_keys($1, $2::text[])
