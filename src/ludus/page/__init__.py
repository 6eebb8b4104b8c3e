"""The page: what trials do, in a browser. `ludus dashboard` starts it; `view.py` is the contract of what it shows.

    app.py       requests → views and actions           access.py    who may ask: hosts, origins, the token
    server.py    a process with the page, start to end  trials.py    the trials of a project, as the index shows them
    frame.py     what is around every view              views/       one file for each view
    site.py      what the views of a process share      static/      the style, and the script that refreshes views

A view is HTML that is made here and refreshed by the browser while it is looked at: nothing is kept for a browser that
has the page open, so many may, for as long as they like.
"""
