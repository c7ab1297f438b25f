"""Output for people and for programs: tables, JSON, figures, the HTML page of a run, and exports. No verdict is made here."""
