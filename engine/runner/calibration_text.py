"""A text of many kinds, about a thousand tokens, which a model reads before its weights are rounded."""

TEXT = """\
The river rises in the hills north of the town and reaches the sea after ninety miles. For most of the year it is \
shallow enough to cross on foot, but in spring, when the snow melts, the water carries away fences, small trees and, \
once, a whole wooden bridge. In 1887 the council decided to build one of stone. It took four years and cost twice what \
had been planned; the mayor lost his office over it. The bridge still stands.

"Have you read the letter?" she asked.
"Twice. I don't believe a word of it," said Thomas, and put his cup down. "No one sells a house for so little."
"Perhaps they need the money."
"Perhaps. Or perhaps the roof is about to fall in. Let's go and look before we sign anything."

Photosynthesis is the process by which plants, algae and some bacteria turn light into chemical energy. Carbon \
dioxide and water are converted into sugar, and oxygen is released: 6 CO2 + 6 H2O -> C6H12O6 + 6 O2. Chlorophyll \
absorbs mostly red and blue light, which is why leaves look green. The first stage needs light; the second, called \
the Calvin cycle, does not.

How do I make pancakes?
1. Mix 200 g of flour, two eggs, 400 ml of milk and a pinch of salt until there are no lumps.
2. Let the batter rest for 20 minutes.
3. Heat a little butter in a pan, pour in a thin layer and turn it when the edges are brown.
4. Serve with lemon and sugar, jam, or cheese.

def largest_below(numbers, limit):
    \"\"\"The largest of the numbers that are below the limit; None if there is none.\"\"\"
    found = None
    for number in numbers:
        if number < limit and (found is None or number > found):
            found = number
    return found

for (let i = 0; i < items.length; i++) { total += items[i].price * items[i].count; }
SELECT name, COUNT(*) AS orders FROM customers JOIN sales ON sales.customer = customers.id GROUP BY name;

{"id": 4711, "name": "Lamp", "price": 39.9, "tags": ["home", "light"], "in_stock": true, "size": {"w": 20, "h": 45}}

User: What is the capital of Australia?
Assistant: The capital of Australia is Canberra. Many people think that it is Sydney, which is the largest city.
User: And how far apart are they?
Assistant: About 280 kilometres by road, roughly three hours by car.

A train leaves at 9:15 and travels 210 miles at 70 miles an hour. When does it arrive? It needs 210 / 70 = 3 hours, so \
it arrives at 12:15. If it stops twice for five minutes, it arrives at 12:25.

Die Sitzung begann um acht Uhr, und niemand wusste, wie lange sie dauern konnte. Le train part dans une heure et nous \
avons encore le temps de manger. El perro duerme bajo la mesa mientras llueve. Il treno per Roma parte alle nove. \
\u4eca\u5929\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65 \
\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059 \
\u041c\u043e\u0441\u043a\u0432\u0430 \u0441\u0442\u043e\u0438\u0442 \u043d\u0430 \u0440\u0435\u043a\u0435

The court held that the contract was void, because neither party had been able to read the clause when it was signed. \
The appeal was dismissed with costs. Shares fell by 3.4% on Tuesday after the company warned that its profit for the \
third quarter would be below expectations, at about $1.2 billion. Analysts had expected 1.5.

Dear Ms Alvarez, thank you for your order of 14 March. We are sorry to tell you that the blue model is sold out. It \
will be back in about three weeks; would you like to wait, or shall we send the green one instead? Kind regards, \
Customer Service

## Installation
Run `pip install example` and then `example --help`. On Windows use PowerShell. If the port is in use, choose another \
one with `--port 8081`. See https://example.org/docs for more.

The old man had been going to the harbour every morning since his wife died. He did not fish any more. He sat on the \
wall, watched the boats and spoke to the gulls as if they were children, and when the sun was above the lighthouse he \
walked home, slowly, with his hands behind his back.
"""
