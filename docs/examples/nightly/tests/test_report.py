from datetime import timedelta

FIGURES = "Bergen: 1 orders, 49.00 euros\nOslo: 2 orders, 61.00 euros"


def test_the_report_of_the_night_has_words_and_figures(model, clock):
    assert {(time.hour, time.minute) for time in clock.next_times("every-night")} == {(2, 30)}
    model.says("A good day.")
    (night,) = clock.advance(timedelta(days=1))
    assert night.time.hour == 2
    assert night.run.text == f"A good day.\n\n{FIGURES}"
    assert FIGURES in str(model.requests[-1]["messages"]).encode().decode("unicode_escape")
