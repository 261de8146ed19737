"""A published atlas: pages as files of a site without a server, with recorded runs."""
