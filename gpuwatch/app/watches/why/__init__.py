"""Why a watch does not act: its rules with their figures, and the words for them."""
