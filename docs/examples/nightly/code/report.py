"""A report in durable code: a worker that dies at 2:31 is replaced, and no step that has ended is done again."""

from __future__ import annotations

from nova_workers.sdk import Context, Message, ModelFailed, agent

# In place of the shop's own services.
SALES = {"Oslo": [4_900, 1_200], "Bergen": [4_900]}


async def read_sales(city: str) -> dict[str, int]:
    """Return how much a shop sold."""
    cents = SALES[city]
    return {"orders": len(cents), "cents": sum(cents)}


@agent
async def report(ctx: Context, message: Message) -> str:
    """Read the sales of all shops at once, have them put into words, and send the report."""
    cities = sorted(SALES)
    sales = await ctx.gather(*(ctx.step(f"sales of {city}", read_sales, city) for city in cities))
    lines = [
        f"{city}: {each['orders']} orders, {each['cents'] / 100:.2f} euros"
        for city, each in zip(cities, sales, strict=True)
    ]
    figures = "\n".join(lines)
    try:
        words = (await ctx.model(f"{message.text}\n\n{figures}", system="Write one sentence.", name="words")).text
    except ModelFailed as error:
        words = f"(No words today: {error})"
    return f"{words}\n\n{figures}"
