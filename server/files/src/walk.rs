//! What a path means in a tree: names from the root down, and where symbolic links lead.
