"""The picture of servers side by side."""

from xml.etree import ElementTree

from tests.bench.peers.picture import draw

_SVG = "{http://www.w3.org/2000/svg}"


def test_each_figure_of_each_server_is_a_bar_as_long_as_its_share_of_the_most() -> None:
    picture = draw({"ours": {"turns": 50.0, "ms": 4.0}, "A & B": {"turns": 200.0, "ms": 1.0}})
    root = ElementTree.fromstring(picture)
    texts = [text.text for text in root.iter(f"{_SVG}text")]
    assert texts == ["turns", "ours", "50.0", "A & B", "200.0", "ms", "ours", "4.0", "A & B", "1.0"]
    bars = [float(bar.attrib["width"]) for panel in root.iter(f"{_SVG}g") for bar in panel.iter(f"{_SVG}rect")]
    assert [bars[0] / bars[1], bars[2] / bars[3]] == [0.25, 4.0]
