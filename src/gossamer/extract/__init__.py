"""From bytes to facts: the encoding of a document, its title and headings, and where its links lead."""
